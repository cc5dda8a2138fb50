"""Masking removes variable parts and keeps distinguishing ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.fingerprint.mask import END_MAX, mask, mask_ends
from streamproc.model.redaction import redact

MASKED = [
    # timestamps, dates, clock times
    ("2026-01-31T12:00:00Z", "2027-11-02T03:04:05Z"),
    ("2026-01-31T12:00:00.123456+00:00", "2026-01-31T12:00:01.5-07:00"),
    ("2026-01-31 12:00:00,123 INFO x", "2026-02-01 09:30:01,007 INFO x"),
    ("2026/01/31 12:00", "2026/01/31 12:01"),
    ("20260131T120000Z", "20260201T093001Z"),
    ("backup_20260131_120000.tar", "backup_20260201_093001.tar"),
    ("[31/Jan/2026:12:00:00 +0000]", "[01/Feb/2026:09:30:01 +0000]"),
    ("Sat Jan 31 12:00:00 2026", "Sun Feb 1 09:30:01 2026"),
    ("Date: 31 Jan 2026 12:00:00 GMT", "Date: 1 Feb 2026 09:30:01 GMT"),
    ("January 31, 2026 7:10 AM", "November 9, 2025 11:00 PM"),
    ("Jan 31 12:00:00 host", "Feb 1 09:30:01 host"),
    ("01/31/2026 12:00", "11/09/2025 13:10"),
    ("at 12:00:00", "at 9:30:01.5"),
    ("12:00 PM", "1:05 pm"),
    ("now=1767225600", "now=1767225601"),
    ("now=1767225600.25", "now=1767225601.75"),
    ("now=1767225600123", "now=1767225601456"),
    ("now=1767225600123456789", "now=1767225601456789012"),
    # ids
    ("550e8400-e29b-41d4-a716-446655440000", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"),
    ("run_550e8400-e29b-41d4-a716-446655440000.log", "run_6ba7b810-9dad-11d1-80b4-00c04fd430c8.log"),
    ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    ("sha256:2c26b46b68ffc68ff99b453c1d304134", "sha256:fcde2b2edba56bf408601fb721fe9b5c"),
    ("request req_011CSHoEeqs5C35K2UU1BMFE", "request req_022DTIpFfrt6D46L3VV2CNGF"),
    ("chatcmpl-9qZx3kLm2NpQ7rSt5UvW8yAb", "chatcmpl-1aBc2dEf3gHi4jKl5mNo6pQr"),
    ("<Task object at 0x7f8a1c2d3e4f>", "<Task object at 0x10a2b3c4d>"),
    ("0xDEADBEEF00", "0xCAFEBABE11"),
    ("pid 1234", "pid 98765"),
    ("PID: 1", "PID: 2"),
    ("[pid=17]", "[pid=18]"),
    ("process 4242 died", "process 4243 died"),
    ("Thread-140234567", "Thread-140234999"),
    # places
    ("/tmp/tmpab12/x.py", "/tmp/tmpzz99/x.py"),
    ("/tmp/tmpqwertz/x.py", "/tmp/tmpasdfgh/x.py"),
    ("/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/z", "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000001/T/z"),
    ("/private/tmp/run1a:", "/private/tmp/run2b:"),
    ("'/tmp/pytest-of-ann/pytest-7/test_a0/x'", "'/tmp/pytest-of-ann/pytest-8/test_a0/x'"),
    ("/tmp/jest-aBcDeF/out.txt", "/tmp/jest-GhIjKl/out.txt"),
    ("/tmp/run-aabfbafc/out.log", "/tmp/run-c946e1e2/out.log"),
    ("/tmp/agent/out-1234.log", "/tmp/agent/out-98765.log"),
    # durations
    ("took 1.23s", "took 45.6s"),
    ("took 12 ms", "took 9 ms"),
    ("passed in 0.05 seconds", "passed in 2 seconds"),
    ("1m 30s", "2m 5s"),
    ("elapsed 1h2m3s", "elapsed 9h8m7.5s"),
    ("real 0m0.123s", "real 1m2.456s"),
    ("waited 5 minutes", "waited 12 minutes"),
    ("elapsed: 00:01:23", "elapsed: 11:59:00"),
    # what a harness adds
    ("Chunk ID: 3f2a1b", "Chunk ID: 90c4de"),
    ("with ID: b7c3f0a.", "with ID: 0a1b2c3."),
    ("Chunk ID: 123456\nWall time: 0.5 seconds", "Chunk ID: abcdef\nWall time: 1.25 seconds"),
    ("Original token count: 1234", "Original token count: 98"),
    ("task 1a2b3c4d done", "task 99ff00ee done"),
    ("run-1a2b3c4d.log", "run-99ff00ee.log"),
    ('{"durationMs":93}', '{"durationMs":107.5}'),
    ('{"elapsed": 0.5}', '{"elapsed": 12}'),
    ('{"total_seconds":1e-05}', '{"total_seconds":3}'),
    ('{"wait_ms":5,"took":1}', '{"wait_ms":17,"took":20}'),
    ('[{"text":"{\\"durationMs\\":5}"}]', '[{"text":"{\\"durationMs\\":71}"}]'),
    ("bash: line 36191: foo: command not found", "bash: line 36207: foo: command not found"),
    ("sh: line 3: foo: not found", "sh: line 14: foo: not found"),
    ("/usr/bin/zsh: line 3: foo: not found", "/usr/bin/zsh: line 14: foo: not found"),
    # looks
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07text", "text"),
    ("a \t\r\n  b", "a b"),
    ("  padded  ", "padded"),
]  # fmt: skip

KEPT = [
    ("loss 0.8474337369372327", "loss 0.6931471805599453"),
    ("exit code 1", "exit code 2"),
    ("error 404", "error 500"),
    ("HTTP 503", "HTTP 429"),
    ("E1101", "E1102"),
    ("ECONNREFUSED", "ECONNRESET"),
    ("errno 13", "errno 2"),
    ("SQLSTATE 42601", "SQLSTATE 42703"),
    ("CVE-2024-12345", "CVE-2024-54321"),
    ("port 8080", "port 8081"),
    ("localhost:5432", "localhost:5433"),
    ("line 42", "line 43"),
    ("a.py:42:7", "a.py:43:7"),
    ("3 failed, 9 passed", "2 failed, 10 passed"),
    ("3/7 done", "4/7 done"),
    ("1/3 tests", "2/3 tests"),
    ("50%", "51%"),
    ("12 files", "13 files"),
    ("5 hosts", "6 hosts"),
    ("3 modules", "4 modules"),
    ("8 shards", "9 shards"),
    ("2 days", "3 days"),
    ("50 MB", "51 MB"),
    ("version 1.2.3", "version 1.2.4"),
    ("python3.11", "python3.12"),
    ("Debian 12.2", "Debian 13.1"),
    ("Section 5: ok", "Section 6: ok"),
    ("Maybe 5 left", "Maybe 4 left"),
    ("Second 5", "Second 6"),
    ("Day 12", "Day 13"),
    ("Marker 3", "Marker 4"),
    ("process 3 of 9", "process 4 of 9"),
    ("order 8842", "order 8843"),
    ("year 2024", "year 2025"),
    ("commit 9fceb02", "commit da39a3e"),
    ("deadbeefcafe", "facadefacade"),
    ("0x1f", "0x2f"),
    ("/home/me/a.py", "/home/me/b.py"),
    ("/home/me/tmp/a.py", "/home/me/tmp/b.py"),
    ("src/tmp/a.py", "src/tmp/b.py"),
    ("/tmp/input.csv", "/tmp/output.csv"),
    ("/tmp/step1.py", "/tmp/step2.py"),
    ("/private/tmp/abc:", "/private/tmp/def:"),
    # a date without a time is the same all day
    ("on 2026-01-31", "on 2026-02-01"),
    ("January 31, 2026", "November 9, 2025"),
    ("01/31/2026", "11/09/2025"),
    ("May 5 is no workday", "May 6 is no workday"),
    ("http://host/tmp/a", "http://host/tmp/b"),
    ("ratio 1:2", "ratio 1:3"),
    ("Yes", "yes"),
    # like what a harness adds, but content
    ("Room ID: B204", "Room ID: B205"),
    ("Ticket ID: 123456", "Ticket ID: 123457"),
    ("Chunk ID: 123456 of the index", "Chunk ID: 123457 of the index"),
    ("Commit ID: 9fceb02", "Commit ID: da39a3e"),
    ("ID: facade", "ID: decade"),
    ("token count: 1234", "token count: 1180"),
    ("12345678 rows", "12345679 rows"),
    ("feedbeef", "deadbeef"),
    ("colour #1a2b3cff", "colour #1a2b3c80"),
    ("CRC 1A2B3C4D", "CRC 99FF00EE"),
    ("loss 1.2345678e-05", "loss 1.1345678e-05"),
    ("loss 1.23456789012e-05", "loss 1.13456789012e-05"),
    ('{"failed":3}', '{"failed":2}'),
    ('{"items":3,"params":4}', '{"items":4,"params":3}'),
    ('{"collapsed":3,"runningVMs":4}', '{"collapsed":2,"runningVMs":5}'),
    ('{"timeoutMs":500}', '{"timeoutMs":900}'),
    ('{"retry_delay_seconds":5}', '{"retry_delay_seconds":9}'),
    ('{"loss":0.5,"progress":71}', '{"loss":0.4,"progress":72}'),
    ("build.sh: line 7: syntax error", "build.sh: line 9: syntax error"),
    ("my.bash: line 7: syntax error", "my.bash: line 9: syntax error"),
    ("publish: line 7: too long", "publish: line 9: too long"),
]


CHOSEN = [
    ("waits 5 minutes", "waits 9 minutes"),
    ('+limit = "320ms"', '+limit = "250ms"'),
    ("timeout after 30 seconds", "timeout after 60 seconds"),
    ("every 1h 30m", "every 2h 30m"),
    ("case[5s]", "case[6s]"),
    ("timeout: '1.5s'", "timeout: '2.5s'"),
]
MEASURED = [
    ("took 12 ms", "took 9 ms"),
    ("2 passed in 3s", "2 passed in 5s"),
    ("ok (5s)", "ok (6s)"),
    ("ran for 1.5s", "ran for 2.5s"),
    ("at 12:00:00", "at 9:30:01"),
]


@pytest.mark.parametrize(("one", "other"), CHOSEN, ids=lambda text: repr(text)[:30])
def test_a_duration_that_an_agent_has_chosen_is_kept(one: str, other: str) -> None:
    assert mask(one, produced=True) != mask(other, produced=True)
    assert mask(one) == mask(other)  # in a program's answer it was measured


@pytest.mark.parametrize(("one", "other"), MEASURED, ids=lambda text: repr(text)[:30])
def test_a_duration_that_was_measured_is_masked_whoever_names_it(one: str, other: str) -> None:
    assert mask(one, produced=True) == mask(other, produced=True)


@pytest.mark.parametrize(("one", "other"), MASKED, ids=lambda text: repr(text)[:30])
def test_variable_parts_are_masked(one: str, other: str) -> None:
    assert mask(one) == mask(other)
    assert mask(f"before {one} after") == mask(f"before {other} after")


@pytest.mark.parametrize(("one", "other"), KEPT)
def test_distinguishing_parts_are_kept(one: str, other: str) -> None:
    assert mask(one) != mask(other)
    assert mask(one) == one


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None, derandomize=True, print_blob=True)
def test_white_space_and_colours_are_ignored(text: str) -> None:
    spaced = f"\n  {text}\t "
    assert mask(spaced) == mask(text)
    assert mask(f"\x1b[1m{text}\x1b[0m") == mask(text)


@given(st.text(max_size=400), st.text(max_size=40))
@settings(max_examples=200, deadline=None, derandomize=True, print_blob=True)
def test_any_text_can_be_masked_and_redacted(text: str, more: str) -> None:
    assert isinstance(mask(text + more), str)
    assert len(redact(text + more)) <= 120
    assert mask(text + more) == mask(text + more)


def test_only_the_ends_of_a_long_text_are_masked() -> None:
    """Masking is expensive, so it is limited to two ends of a fixed size, even for ten megabytes."""
    text = "at 12:00:00 the build goes on\n" * 350_000
    assert len(text) > 10_000_000
    head, middle, tail = mask_ends(text)
    assert head == mask(text[:END_MAX])
    assert middle == text[END_MAX:-END_MAX]
    assert tail == mask(text[-END_MAX:])
    assert "12:00:00" not in head + tail


@pytest.mark.parametrize("length", [2 * END_MAX - 1, 2 * END_MAX, 2 * END_MAX + 1])
def test_nothing_is_lost_at_the_cuts_of_a_long_text(length: int) -> None:
    text = "".join(chr(ord("a") + n % 23) for n in range(length))
    assert "".join(mask_ends(text)) == text


AWKWARD = ["1" * END_MAX, "f" * END_MAX, "1:" * (END_MAX // 2), "a" * END_MAX + "@", "/tmp/" * (END_MAX // 5),
           "\x1b]" * (END_MAX // 2), " " * END_MAX, "_1a" * (END_MAX // 3), "Jan " * (END_MAX // 4),
           "1 s " * (END_MAX // 4), "ab-" * (END_MAX // 3), "1h1m" * (END_MAX // 4),
           '":1' * (END_MAX // 3), '_ms":1' * (END_MAX // 6), "ID: 1a" * (END_MAX // 6), '":' + "1" * END_MAX,
           "bash: line 1" * (END_MAX // 12), "Chunk ID: 12345" * (END_MAX // 15),
           "1a2b3c4" * (END_MAX // 7) + "-g"]  # fmt: skip


@pytest.mark.parametrize("text", AWKWARD, ids=lambda text: text[:6])
def test_awkward_texts_do_not_cause_backtracking(text: str) -> None:
    """Patterns with catastrophic backtracking would hang on these."""
    assert len(mask(text)) <= len(text)
    assert len(redact(text)) <= 120


SECRETS = [
    ("Authorization: Bearer abcdef123456 rejected", "abcdef123456"),
    ('{"Authorization": "Bearer opaque-token-9"}', "opaque-token-9"),
    ("authorization=Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"), ("used sk-proj-abc123def456ghi789", "abc123def456ghi789"),
    ("remote: ghp_abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    ("github_pat_11ABCDEFG0abcdefghij", "11ABCDEFG0abcdefghij"), ("glpat-abcdefghij0123456789", "abcdefghij0123456789"),
    ("hf_abcdefghijklmnop", "abcdefghijklmnop"), ("AKIAIOSFODNN7EXAMPLE is unknown", "IOSFODNN7EXAMPLE"),
    ("AIzaSyA1234567890abcdefg", "SyA1234567890"), ("xoxb-123456789012-abcdef", "123456789012"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.sig", "eyJzdWIiOiIx"), ("aws_secret_access_key=wJalrXUtnFEMI", "wJalrXUtnFEMI"),
    ("password: hunter2", "hunter2"), ("PASSWORD='s3cret!'", "s3cret!"),
    ("login with password hunter22 failed", "hunter22"), ("X-Api-Key: 99zz88yy", "99zz88yy"),
    ("?token=abc123&x=1", "abc123"), ("postgres://user:pa55word@db:5432/x", "pa55word"),
    ("redis://:pa55word@cache", "pa55word"), ("mail to jane.doe@example.com", "jane.doe"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_redacted(text: str, secret: str) -> None:
    assert secret in text
    shown = redact(f"Request failed. {text}")
    assert secret not in shown
    assert "<redacted>" in shown
    assert shown.startswith("Request failed.")


@pytest.mark.parametrize(
    "text",
    ["Unexpected token 'foo' in JSON", "input_tokens: 12345 > max_tokens=4096", "pkg-config missing library",
     "No module named skimage.transform", "basic authentication failed", "channel_not_found"],
)  # fmt: skip
def test_an_error_without_secrets_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_an_excerpt_is_one_short_line() -> None:
    shown = redact("\x1b[31mTraceback\x1b[0m\n\n  File x\n" + "y" * 10_000)
    assert shown.startswith("Traceback File x yyy")
    assert len(shown) == 120
    assert shown.endswith("…")
