"""Made-up secrets in the shapes of real ones, the forms they appear in, and texts that only look like secrets.

No secret stands here whole, so scanners have nothing to find: `SHAPED` has recipes, made into tokens with a fixed seed.
In a recipe, ``w36`` stands for 36 letters and digits, ``h`` hex, ``U`` capitals and digits, ``l`` small letters and
digits, ``d`` digits, ``b`` base 64 and ``u`` its URL-safe form; a part that begins with ' is literal.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

_LETTERS: Final = string.ascii_letters + string.digits
_ALPHABETS: Final = {
    "w": _LETTERS, "h": "0123456789abcdef", "U": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits, "d": string.digits, "b": f"{_LETTERS}+/", "u": f"{_LETTERS}-_",
}  # fmt: skip

SHAPED: Final = """
'AKIA U16|'ASIA U16|'ABIA U16|'ACCA U16|'A3TX U16|'ABSK b120|'bedrock-api-key- b80|'AIza u35|'ya29. u60|'ya29.a0 u90
'GOCSPX- u28|'1//0g u45|'4/0A u60|'AQ.Ab u48|'dop_v1_ h64|'doo_v1_ h64|'dor_v1_ h64|'LTAI w20|'AKID w32|'AQVN u36
'y0_ u50|'YC4 u37|'v1.0- h24 '- h146|'HRKU-AA u58|'fo1_ u43|'fm1r_ b100|'fm2_ b100|'rnd_ w32|'nfp_ w36|'nfc_ w36
'vcp_ w32|w14 '.atlasv1. u67|'hvs. u95|'hvb. u140|'hvr. u90|'s.4 w23|'dp.pt. w43|'dp.st.dev. w43|'dp.ct. w43|'pul- h40
'sha256~ u43|'4b1d w38|'pscale_tkn_ u43|'pscale_oauth_ u43|'pscale_pw_ u43|'sbp_ h40|'sb_secret_ u31|'dapi h32
'ghp_ w36|'gho_ w36|'ghu_ w36|'ghs_ w36|'ghr_ w36|'github_pat_ w22 '_ w59|'glpat- u20|'glrt- u20|'gldt- u20|'glft- u20
'glcbt-64_ u20|'glptt- h40|'gloas- h64|'glsoat- u20|'glagent- u50|'glimt- u25|'glffct- u20|'GR1348941 u20|'npm_ w36
'pypi-AgEIcHlwaS5vcmc u120|'rubygems_ h48|'oy2 l43|'cio7 w31|'CLOJARS_ l60|'dckr_pat_ u27|'dckr_oat_ u32
'ATATT3xFfGF0 u180|'ATCTT3 u60|'ATBB w32|'AKCp w69|'cmVmd w59|'sgp_ h40|'squ_ h40|'sqp_ h40|'sqa_ h40|'NRAK- U27
'NRJS- h19|'NRII- u32|'glc_ b64|'glsa_ w32 '_ h8|'sntryu_ h64|'sntrys_eyJpYXQiO b80 '_ b43|'dt0c01. U24 '. U64
'API- U26|'lin_api_ w40|'lin_oauth_ h64|'PMAK- h24 '- h34|'pnu_ w36|'pnb_ w36|'rdme_ l70|'tk-us- u48|'ico- w32
'sm_aat_ w16|'sm_pat_ w16|'sm_sat_ w16|w6 '_ w29 '_mmk|'ntn_ d11 w35|'secret_ w43|'figd_ u40|'pat w14 '. h64
'pat-na1- h8 '- h4 '- h4 '- h4 '- h12|'CFPAT- u43|'tfp_ u44|'A3- U6 '- U11 '- U5 '- U5 '- U5|'ops_eyJ b260
'AGE-SECRET-KEY-1 U58|'pat. u22 '. w24 '. w20|'sat. u22 '. w24 '. w20|'fio-u- u64|'p8e- l32|'sk-ant-api03- u93 'AA
'sk-ant-admin01- u93 'AA|'sk-proj- u74 'T3BlbkFJ u74|'sk- w20 'T3BlbkFJ w20|'sk-svcacct- u58|'sk-or-v1- h64
'sk-lf- h8 '- h4 '- h4 '- h4 '- h12|'pk-lf- h8 '- h4 '- h4 '- h4 '- h12|'gsk_ w52|'xai- w80|'r8_ w37|'pplx- w48
'hf_ w34|'api_org_ w34|'fw_ w24|'tgp_v1_ u43|'nvapi- u64|'jina_ w60|'lsv2_pt_ h32 '_ h10|'lsv2_sk_ h32 '_ h10
'pcsk_ w6 '_ w63|'tvly-dev- w32|'tvly- w32|'fc- h32|'e2b_ h40|'csk- l48|'phc_ w43|'phx_ w43|'xoxb- d12 '- d12 '- w24
'xoxp- d12 '- d12 '- d12 '- h32|'xoxa-2- w40|'xoxr- w40|'xoxs- d11 '- d11 '- d11 '- h10|'xoxe-1- U146
'xoxe.xoxp-1- U163|'xoxc- d12 '- d12 '- h64|'xoxd- u120|'xapp-1- U11 '- d13 '- h64|'xwfp- d12 '- u30
'M u25 '. u6 '. u38|'N u23 '. u6 '. u27|'SG. u22 '. u43|'key- h32|'xkeysib- h64 '- w16|'xsmtpsib- h64 '- w16
h32 '-us12|'re_ w7 '1_ w12 '7 w12|'SK h32|'sk_live_ w24|'sk_test_ w24|'rk_live_ w24|'rk_test_ w24|'pk_live_ w24
'sk_ h48|'whsec_ w32|'sq0atp- u22|'sq0csp- u43|'EAAA u60|'EAACEdEose0cBA w120|'shpat_ h32|'shpca_ h32|'shppa_ h32
'shpss_ h32|'access-sandbox- h8 '- h4 '- h4 '- h4 '- h12|'access-production- h8 '- h4 '- h4 '- h4 '- h12
'rzp_live_ w14|'rzp_test_ w14|'EZAK w54|'EZTK w54|'FLWSECK_TEST- h32 '-X|'duffel_live_ u43|'duffel_test_ u43
'shippo_live_ h40|'shippo_test_ h40|'sl. u135|'eyJhbGciOiJIUzI1NiJ9.eyJ u60 '. u43
'eyJhbGciOiJSUzI1NiJ9.eyJ u120 '. u86|'eyJ w80|'MIIEpAIBAAKCAQEA b300|'b3BlbnNzaC1rZXktdjEA b200|'xprv w107|'zprv w107
'amzn.mws. h8 '- h4 '- h4 '- h4 '- h12|u3 '8Q~ u34|'t1. u48 '. u86|w26|w32|w40|w48|w64|b40|b44|b64|b88|u32|u43|u64|u86
"""

_NAMES: Final = """
password passwd pwd DB_PASSWORD MYSQL_PWD PGPASSWORD userPassword passphrase api_key apiKey API-KEY x-api-key
OPENAI_API_KEY secret client_secret clientSecret aws_secret_access_key secretAccessKey access_key private_key
SigningKey encryption_key AccountKey SharedAccessKey subscription-key Ocp-Apim-Subscription-Key license_key auth_key
appKey service_key consumer_key session_key storage_key masterKey deploy-key access_token refresh_token id_token
auth_token X-Auth-Token X-Vault-Token Private-Token bot_token csrf_token SLACK_TOKEN credential credentials
webhook_secret jwt session_token secret_id admin_password root_password smtp_password
"""

# Each is a text with a secret in it, between \x00 marks.
_PLACED: Final = r"""
https://hooks.slack.com/services\x00/T0{U8}/B0{U8}/{w24}\x00
https://hooks.slack.com/workflows\x00/T0{U8}/A0{U8}/{d18}/{w24}\x00
https://discord.com/api/webhooks\x00/{d18}/{u68}\x00
https://discordapp.com/api/v10/webhooks\x00/{d18}/{u68}\x00
https://acme.webhook.office.com\x00/webhookb2/{h8}-{h4}-{h4}-{h4}-{h12}@{h8}-{h4}-{h4}-{h4}-{h12}/IncomingWebhook/{h32}\x00
https://chat.googleapis.com/v1/spaces\x00/{w11}/messages?key={u39}&token={u43}\x00
https://prod-12.westeurope.logic.azure.com:443\x00/workflows/{h32}/triggers/manual/paths/invoke?sig={u43}\x00
https://api.telegram.org/bot\x00{d10}:AA{u33}\x00/getMe
https://hooks.zapier.com/hooks\x00/catch/{d7}/{l7}\x00
https://maker.ifttt.com\x00/trigger/x/with/key/{u43}\x00
postgres://app:\x00{w16}\x00@db.internal:5432/shop
mongodb+srv://app:\x00{w16}\x00@cluster0.mongodb.net/shop
amqp://guest:\x00{l9}\x00@rabbit:5672/
redis://:\x00{w20}\x00@cache:6379/0
https://user:\x00{w8}@{w8}\x00@example.com/repo.git
https://\x00{l40}\x00@github.com/acme/app.git
https://\x00{l40}\x00:x-oauth-basic@github.com/acme/app.git
jdbc:postgresql://db/shop?user=app&password=\x00{w14}\x00
app:\x00{w14}\x00@tcp(db:3306)/shop
https://acme.blob.core.windows.net/c/f?sv=2022-11-02&sp=r&sig=\x00{w42}8\x00%3D
https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature=\x00{h64}\x00
https://storage.googleapis.com/b/o?X-Goog-Signature=\x00{h128}\x00&x=1
https://api.example.com/v1?key=\x00{l30}7\x00&q=2
https://app.example.com/callback?code=\x00{l30}7\x00
DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=\x00{b86}\x00==
Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=\x00{b43}\x00=
Server=db;Database=shop;User Id=sa;Password=\x00{w12}\x00
Authorization: Bearer \x00{u24}\x00
Authorization: Basic \x00{w24}\x00==
authorization: token \x00{h40}\x00
Authorization: \x00{h40}\x00
Proxy-Authorization: Basic \x00{w24}\x00
Authorization: AWS4-HMAC-SHA256 Credential=\x00AKIA{U16}\x00/20260101/us-east-1/s3/aws4_request
Authorization: AWS4-HMAC-SHA256 SignedHeaders=host;range, Signature=\x00{h64}\x00
Cookie: theme=dark; sessionid=\x00{l32}\x00; lang=en
Set-Cookie: sid=\x00{l26}\x00; Path=/; HttpOnly
cookie: \x00_gh_sess={b60}\x00
curl -u admin:\x00{w10}\x00 https://example.com
curl -sS --user admin:\x00{w10}\x00 https://example.com
curl -H "Authorization: Bearer \x00{u30}\x00" https://example.com
curl -H 'X-Api-Key: \x00{l20}\x00' https://example.com
curl --cookie "session=\x00{l30}\x00" https://example.com
mysql -h db -u root -p\x00{w10}\x00 shop
mysqldump -uroot -p\x00{w10}\x00 shop
mariadb-dump -uroot -p\x00{w10}\x00 shop
sshpass -p \x00{w10}\x00 ssh root@host
sshpass -p'\x00{w10}\x00' ssh root@host
docker login -u me -p \x00{w10}\x00 registry.example.com
redis-cli -h cache -a \x00{w10}\x00 ping
mongosh -u root -p \x00{w10}\x00 admin
ldapsearch -D cn=admin -w \x00{w10}\x00 -b dc=x
smbclient //host/share -U user%\x00{w10}\x00
unzip -P \x00{w10}\x00 a.zip
htpasswd -bc .htpasswd me \x00{w10}\x00
echo 'root:\x00{w10}\x00' | chpasswd
tool --password \x00correcthorse\x00 --verbose
tool --token=\x00{l12}\x00
tool --api-key \x00{l20}\x00
tool --client-secret \x00{w20}\x00
["tool", "--password", "\x00{w10}\x00"]
PGPASSWORD=\x00{w8}\x00 psql -h db
export GITHUB_TOKEN=\x00{h40}\x00
openssl rsa -in k.pem -passin pass:\x00{w10}\x00
kubectl create secret generic db --from-literal=password=\x00{w10}\x00
helm install x --set auth.rootPassword=\x00{w10}\x00
//registry.npmjs.org/:_authToken=\x00{h36}\x00
machine github.com login me password \x00{w10}\x00
CREATE USER app IDENTIFIED BY '\x00{w10}\x00'
ALTER ROLE app WITH PASSWORD '\x00{w10}\x00'
<password>\x00{w10}\x00</password>
<add key="ClearTextPassword" value="\x00{w10}\x00" />
{{"password": "\x00correct horse battery staple\x00"}}
{{\"api_key\": \"\x00{l20}\x00\", \"x\": 1}}
{{\\\"api_key\\\": \\\"\x00{l20}\x00\\\"}}
{{"auths": {{"r.example.com": {{"auth": "\x00{w28}\x00="}}}}}}
{{'db_password': '\x00pa"ss{w6}\x00'}}
password is \x00{w10}\x00
Incorrect API key provided: \x00{l24}\x00
login with password \x00{w9}7\x00 failed
-----BEGIN RSA PRIVATE KEY-----\n\x00{b64}\n{b64}\x00\n-----END RSA PRIVATE KEY-----
-----BEGIN OPENSSH PRIVATE KEY-----\n\x00{b64}\x00
-----BEGIN PRIVATE KEY-----\\n\x00{b64}\x00\\n-----END PRIVATE KEY-----
-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n\x00{b64}\x00\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----
-----BEGIN PGP MESSAGE-----\n\n\x00{b64}\x00\n-----END PGP MESSAGE-----
bot \x00{d9}:AA{u33}\x00 was blocked
"""

LOOK_ALIKES: Final = r"""
commit 5f2d9c7a1b3e4d6f8a0c2e4b6d8f0a1c3e5b7d9f
5f2d9c7a
index 5f2d9c7..8a0c2e4 100644
d41d8cd98f00b204e9800998ecf8427e
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==
SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8
h1:6a1OLf3YVHPkNNGyPZBXmXb5cn1Bkw2kAyHDR3ZLdAg=
550e8400-e29b-41d4-a716-446655440000
01ARZ3NDEKTSV4RRFFQ69G5FAV
507f1f77bcf86cd799439011
/usr/lib/python3.11/site-packages/streamproc/fingerprint/turn.py
/home/user/.cache/pypoetry/virtualenvs/my-project-8sQz3kXe-py3.11/bin/python
/tmp/pytest-of-root/pytest-12/test_login0/config.yaml
/nix/store/0c7xq9zr6p1b2m3n4v5s6d7f8g9h0j1k-openssl-3.0.12
C:\Users\ada\AppData\Local\Programs\Python\Python311\python.exe
node_modules/@babel/plugin-transform-modules-commonjs/lib/index.js
src/components/UserProfileSettings/UserProfileSettings.test.tsx
tests/test_auth.py::TestLogin::test_login_with_password[chromium]
tests/test_api_key.py::test_api_key_rotation
com.fasterxml.jackson.databind.exc.InvalidDefinitionException
org.springframework.security.authentication.BadCredentialsException
java.lang.NoClassDefFoundError: org/apache/logging/log4j/LogManager
AbstractSingletonProxyFactoryBeanDefinitionParserHolderV2Impl
TestHTTP2ServerHandlesBase64EncodedUTF8HeadersCorrectly
shouldReturn404WhenUserIsNotFoundInDatabaseV2
_ZN4core3fmt9Formatter12pad_integral17h0123456789abcdefE
get_user_profile_settings_by_account_identifier_and_region
test_that_the_parser_accepts_an_empty_document_without_a_header
MAX_CONCURRENT_REQUESTS_PER_CONNECTION
langchain-community==0.2.16
torch-2.3.1+cu121-cp311-cp311-manylinux_2_17_x86_64.whl
v1.28.3-eks-4f4795d
node:20.11.1-alpine3.19
github.com/aws/aws-sdk-go-v2/service/s3 v1.48.1
golang.org/x/net v0.0.0-20240102182953-50ed04b92917
@types/react-dom@18.2.18
#ff8800
#1a2b3c4d
rgb(12, 34, 56)
2026-01-31T12:00:00Z
2026-01-31T12:00:00.123456+00:00
Sat, 31 Jan 2026 12:00:00 GMT
1767225600000
payments-api-7d9f8b6c5d-x2k4q
kube-system/coredns-5d78c9869d-8hbtf
ip-10-0-12-34.eu-west-1.compute.internal
i-0abcd1234efgh5678
arn:aws:iam::123456789012:role/MyServiceRoleForLambda
arn:aws:lambda:us-east-1:123456789012:function:process-orders
projects/my-project/locations/europe-west1/services/api
/subscriptions/550e8400-e29b-41d4-a716-446655440000/resourceGroups/rg-prod
gpt-4o-mini-2024-07-18
claude-3-5-sonnet-20241022
meta-llama/Meta-Llama-3.1-70B-Instruct
gemini-1.5-pro-002
toolu_01A09q90qw90lq917835lq9
call_abc123DEF456ghi789JKL012
chatcmpl-9qZx8YwVuTsRqPoNmLkJiHgFeDcBa
req_011CSHoEeqs5C35K2UU1BMFE
msg_01XFDUDYJgAACzvnptvVoYEL
run_7f8s9d7f98s7df98s7df
asst_abc123DEF456ghi789JKL0
pi_3MtwBwLkdIwHu7ix28a3tqPa
cus_NffrFeUfNV2HibAbCd12
Unexpected token 'foo' in JSON at position 42
SyntaxError: Unexpected token: '<'
unexpected token: "function"
input_tokens: 12345 > max_tokens=4096
max_tokens=4096
token_count: 128
num_tokens=12345678
tokenizer=cl100k_base
KeyError: 'api_key'
missing required field: password
password: required
Invalid password: too short
secret: None
api_key=None
api_key=os.environ["OPENAI_API_KEY"]
api_key=settings.api_key
token=$GITHUB_TOKEN
password=${DB_PASSWORD}
password: ********
password=<redacted>
primary_key=id
sort_key: created_at
cache_key=user-42
foreign key constraint "orders_user_id_fkey" failed
keyword: value
passed: 12, failed: 3
pass: 12 fail: 3
author: Jane
authenticated: true
basic authentication failed
Bearer token expired
bearer token is missing
Authorization header missing
session expired
session_id: r1
signature mismatch
npm_install_package
npm_config_registry_url
hf_download_model
sk-learn-contrib
pypi-search
pip_install_requirements
re_compile_pattern_cache_entry
secret_rotation_policy_checker
key-value-store
get_secret_value
list_api_keys
reset_password
token_file=/var/run/token
secret_name: prod/db
http://localhost:8080/health
https://github.com/acme/app/pull/1234
https://example.com/docs?page=2&sort=name
redis://cache:6379/0
postgres://db:5432/shop
file.py:12: error: Name "x" is not defined
git@github.com:acme/app.git
ssh://git@github.com/acme/app.git
docker run -u 1000:1000 -p 8080:80 alpine
mysql -h db -P 3306 shop
tar -xzf a.tgz -C /opt
HTTP 401 Unauthorized
channel_not_found
pkg-config missing library
No module named skimage.transform
ConnectionError: HTTPSConnectionPool(host='api.openai.com', port=443): Max retries exceeded
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
AssertionError: assert 404 == 200
x86_64-unknown-linux-gnu
ISO-8859-1
en_US.UTF-8
00:1A:2B:3C:4D:5E
2001:0db8:85a3:0000:0000:8a2e:0370:7334
"""

_FORMS: Final[dict[str, Callable[[str], str]]] = {
    "bare": lambda token: token,
    "assignment": lambda token: f"value={token}",
    "JSON": lambda token: json.dumps({"value": token, "n": 1}),
    "escaped JSON": lambda token: json.dumps(json.dumps({"value": token, "n": 1})),
    "URL": lambda token: f"https://api.example.com/v1/items?x={quote(token, safe='')}&page=2",
    "command": lambda token: f"deploy --with {token} --now",
    "header": lambda token: f"X-Custom: {token}\r\nAccept: */*",
    "stack trace": lambda token: f'  File "app.py", line 3, in start\n    run("{token}")\nValueError: bad {token}',
}
_NAMED_FORMS: Final[dict[str, Callable[[str, str], str]]] = {
    "bare": lambda name, value: f"{name}: {value}",
    "assignment": lambda name, value: f"{name}={value}",
    "JSON": lambda name, value: json.dumps({name: value, "n": 1}),
    "escaped JSON": lambda name, value: json.dumps(json.dumps({name: value, "n": 1})),
    "URL": lambda name, value: f"https://api.example.com/v1/items?{name}={value}&page=2",
    "command": lambda name, value: f"deploy --{name} {value} --now",
    "header": lambda name, value: f"{name}: {value}\r\nAccept: */*",
    "stack trace": lambda name, value: f'  File "app.py", line 3, in start\n    run({name}="{value}")\nValueError: bad',
}


def _made(kind: str, size: int, chance: random.Random) -> str:
    """Return random characters; mixed ones have all their kinds, as random text of this length nearly always has."""
    while True:
        text = "".join(chance.choices(_ALPHABETS[kind], k=size))
        if kind not in "wbul" or size < 12 or (any(map(str.isdecimal, text)) and any(map(str.isalpha, text))):
            return text


def _token(recipe: str, chance: random.Random) -> str:
    return "".join(
        part[1:] if part.startswith("'") else _made(part[0], int(part[1:]), chance) for part in recipe.split()
    )


def shaped_tokens() -> list[str]:
    """Return a token of each recipe."""
    chance = random.Random(7)
    return [_token(recipe, chance) for line in SHAPED.split("\n") for recipe in line.split("|") if recipe]


def named_values() -> list[tuple[str, str]]:
    """Return names of secrets, each with a value that shows nothing by itself."""
    chance = random.Random(8)
    return [
        (name, _made("l", 12, chance) if n % 2 else _made("h", 32, chance)) for n, name in enumerate(_NAMES.split())
    ]


def placed_secrets() -> list[tuple[str, str]]:
    """Return (text, secret) of secrets that are recognised by their place."""
    chance = random.Random(9)
    found = []
    for line in filter(None, _PLACED.split("\n")):
        text = line.replace("\\x00", "\0").replace("\\n", "\n") if "\\\\n" not in line else line.replace("\\x00", "\0")
        text = text.replace("\\\\n", "\\n")
        parts = text.replace("{{", "\1").replace("}}", "\2").split("{")
        made = parts[0] + "".join(
            _made(part[0], int(part[1 : part.index("}")]), chance) + part[part.index("}") + 1 :] for part in parts[1:]
        )
        before, secret, after = made.replace("\1", "{").replace("\2", "}").split("\0")
        found.append((f"{before}{secret}{after}", secret))
    return found


def texts() -> Iterator[tuple[str, str, str]]:
    """Yield (form, text, secret) of every secret in every form."""
    for token in shaped_tokens():
        for form, write in _FORMS.items():
            yield form, write(token), token
    for name, value in named_values():
        for form, write_named in _NAMED_FORMS.items():
            yield form, write_named(name, value), value
    for text, secret in placed_secrets():
        yield "in its place", text, secret


def look_alikes() -> list[str]:
    """Return texts without secrets."""
    return [line for line in LOOK_ALIKES.split("\n") if line]
