"""The shapes of secrets: the prefixes that issuers give them, and the least length of what follows.

From the rules of gitleaks 8 (MIT, https://github.com/gitleaks/gitleaks, config/gitleaks.toml) and the issuers'
documentation. Each is a regular expression without white space, matched at the start of a word. The least length is
below the real one, because logs cut secrets. A tail without an end has no upper bound, and nothing after it can fail.
"""

from __future__ import annotations

from typing import Final

CLOUDS: Final = r"""
    (?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,} ABSK[\w+/=]{40,} bedrock-api-key-[\w+/=]{16,}
    amzn\.mws\.[0-9a-f-]{36} AIza[\w-]{20,} ya29\.[\w.-]{16,} GOCSPX-[\w-]{16,} 1//0[\w-]{30,} 4/0A[\w-]{30,}
    AQ\.Ab[\w-]{30,} do[opr]_v1_[0-9a-f]{20,} LTAI[A-Za-z0-9]{16,} AKID[A-Za-z0-9]{28,} AQVN[\w-]{30,}
    t1\.[\w=-]{20,300}\.[\w=-]{60,} y0_[\w-]{30,} YC(?=[A-Za-z_-]{0,37}\d)[\w-]{38} [\w~.]{3}\dQ~[\w~.-]{31,34}
    v1\.0-[0-9a-f]{24}-[0-9a-f]{100,} HRKU-[\w-]{30,} fo1_[\w-]{30,} fm[12][ar]?_[\w+/=-]{40,} rnd_[A-Za-z0-9]{20,}
    nf[pcoub]_[A-Za-z0-9]{30,} vc[a-z]_[A-Za-z0-9]{24,} [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,} hv[sbr]\.[\w-]{16,}
    s\.(?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{24}(?![\w.]) dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{20,} pul-[0-9a-f]{30,}
    sha256~[\w-]{20,} 4b1d[A-Za-z0-9]{38} pscale_(?:tkn|oauth|pw)_[\w.=-]{20,} sbp_[0-9a-f]{30,} sb_secret_[\w-]{16,}
    dapi[0-9a-f]{30,}
"""

CODE_PACKAGES: Final = r"""
    gh[oprsu]_[A-Za-z0-9_.-]{16,} github_pat_\w{16,} gl(?:pat|rt|dt|ft|cbt|ptt|oas|soat|agent|imt|ffct)-[\w.=-]{16,}
    GR1348941[\w-]{16,} npm_[A-Za-z0-9]{20,} pypi-A[\w-]{30,} rubygems_[0-9a-f]{30,} oy2[a-z0-9]{43}
    cio(?=[a-zA-Z]{0,20}\d)[A-Za-z0-9]{32}(?!\w) CLOJARS_[a-z0-9]{30,} dckr_(?:pat|oat)_[\w-]{20,}
    AT(?:ATT3|CTT3|BB)[\w=-]{20,} AKCp[A-Za-z0-9]{40,} cmVmd[A-Za-z0-9]{50,} sgp_\w{30,} squ_[0-9a-f]{30,}
    sq[ap]_[0-9a-f]{30,} NRAK-[A-Z0-9]{20,} NR(?:JS|II|RA|AA)-[\w-]{15,} gl(?:c|sa)_[\w+/=]{20,}
    sntry[su]_[\w+/=.-]{20,} dt0[a-z]\d\d\.[A-Z0-9]{20,40}\.[A-Z0-9]{40,} API-[A-Z0-9]{26}(?!\w)
    lin_(?:api|oauth)_[A-Za-z0-9]{20,} PMAK-[0-9a-f-]{40,} pn[ub]_[A-Za-z0-9]{30,} rdme_[a-z0-9]{40,} tk-us-[\w-]{40,}
    ico-[A-Za-z0-9]{32} sm_[aps]at_[A-Za-z0-9]{16,} [A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk ntn_[A-Za-z0-9]{30,}
    secret_[A-Za-z0-9]{30,} figd_[\w-]{20,} pat[A-Za-z0-9]{14}\.[0-9a-f]{40,} pat-(?:na|eu|ap)\d-[0-9a-f-]{36}
    CFPAT-[\w-]{30,} tfp_[\w.=-]{30,} A3-[A-Z0-9]{6}-[A-Z0-9-]{20,} ops_eyJ[\w+/=-]{20,} AGE-SECRET-KEY-1[A-Z0-9]{20,}
    (?:pat|sat)\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20} fio-u-[\w=-]{40,} p8e-[a-z0-9]{32}
"""

MODELS: Final = r"""
    sk-(?=[\w-]{0,60}\d)[\w-]{12,} pk-lf-[0-9a-f-]{20,} gsk_[A-Za-z0-9]{16,} xai-[A-Za-z0-9]{20,} r8_[A-Za-z0-9]{20,}
    pplx-[A-Za-z0-9]{20,} hf_[A-Za-z0-9]{16,} api_org_[A-Za-z0-9]{16,} fw_[A-Za-z0-9]{20,} tgp_v1_[\w-]{20,}
    nvapi-[\w-]{20,} jina_[A-Za-z0-9_-]{30,} lsv2_[ps][tk]_\w{20,} pcsk_\w{20,} tvly-(?:dev-|prod-)?[A-Za-z0-9]{16,}
    fc-[0-9a-f]{32} e2b_[0-9a-f]{20,} csk-[a-z0-9]{30,} ph[cx]_[A-Za-z0-9]{30,}
"""

CHATS_MAIL_MONEY_SHOPS: Final = r"""
    xox[a-z](?:\.xox[a-z])?-[\w.-]{10,} xapp-[\w-]{10,} xwfp-[\w-]{20,} [MNO][\w-]{22,30}\.[\w-]{6}\.[\w-]{27,}
    SG\.[\w-]{10,60}\.[\w-]{10,} (?<![-_])key-[0-9a-f]{32} xkeysib-[0-9a-f]{40,}[\w-]* xsmtpsib-[0-9a-f]{40,}[\w-]*
    [0-9a-f]{32}-us\d{1,2}(?!\w) re_[A-Za-z0-9]{8}_(?=[A-Za-z]{0,15}\d)[A-Za-z0-9]{16,}
    re_(?=[A-Za-z]{0,20}\d)[A-Za-z0-9]{24,} SK[0-9a-f]{32}(?!\w) (?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}
    sk_(?=[a-z_]{0,20}\d)[A-Za-z0-9]{20,} whsec_[\w+/=-]{16,} sq0[a-z]{3}-[\w-]{22,} EAAA[\w-]{40,}
    EAA[A-Za-z0-9]{60,} shp(?:at|ca|pa|ss|ua)_[0-9a-fA-F]{20,} access-(?:sandbox|development|production)-[0-9a-f-]{36}
    rzp_(?:live|test)_[A-Za-z0-9]{14,} EZ[AT]K[A-Za-z0-9]{40,} FLWSECK[\w-]{16,} duffel_(?:test|live)_[\w=-]{20,}
    shippo_(?:live|test)_[0-9a-f]{30,} sl\.[\w=-]{60,}
"""

FORMS: Final = r"""
    eyJ[\w-]{8,}(?:[.][\w+/=-]*){0,4} (?:MI[GI]|b3BlbnNzaC1rZXkt)[\w+/=]{60,} [xyz]prv[A-Za-z0-9]{90,}
"""

SHAPES: Final = tuple(f"{CLOUDS} {CODE_PACKAGES} {MODELS} {CHATS_MAIL_MONEY_SHOPS} {FORMS}".split())
