"""Judge names and values: is this the name of a secret, and could this value be one?"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

__all__ = ["Strength", "is_dull_key", "is_harmless", "is_secret_value", "looks_random", "strength_of", "switches"]


class Strength(IntEnum):
    """How much a value must look like a secret before it is taken for one because of its name."""

    NONE = 0
    WEAK = 1
    """`key`: only a long random value."""
    MEDIUM = 2
    """`token`, `auth`: a value with digits or mixed letters."""
    STRONG = 3
    """`api_key`, `secret`: whatever is no number, switch, path or placeholder."""
    PASSWORD = 4
    """As strong, and a number is one, too."""


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_PASSWORDS = (
    *("password", "passwords", "passwd", "passphrase", "passphrases", "passcode", "pwd", "passwrd", "passw", "psw"),
    *("passwort", "kennwort", "motdepasse", "contrasena", "senha", "wachtwoord", "passord", "salasana"),
)
_STRONG = (
    "authtok",
    "pw",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "creds",
    "psk",
    "jwt",
    "mnemonic",
    "bearer",
    "apikey",
    "apikeys",
    "otp",
    "totp",
)
_MEDIUM = (
    "auth",
    "authorization",
    "authentication",
    "session",
    "sessionid",
    "csrf",
    "xsrf",
    "cookie",
    "cookies",
    "webhook",
    "cred",
    "sas",
)
_KEY_OF_SECRETS = frozenset(
    "api access secret private account auth encryption decryption crypto crypt signing shared master license licence routing "
    "integration service services subscription storage deploy deployment hmac session security consumer application app admin "
    "personal webhook client wandb comet neptune openai anthropic azure aws gcp stripe twilio sendgrid mailgun "
    "datadog dd newrelic "
    "relic pagerduty opsgenie sentry rollbar algolia fernet jwt ssl tls ssh rsa pgp gpg munge vault unseal recovery root hf ngc "
    "mistral cohere groq replicate together fireworks deepseek gemini google firebase maps serper tavily pinecone "
    "weaviate qdrant "
    "langsmith langchain langfuse project ingest ingestion write function functions host system trial cdn kms aes "
    "des wallet "
    "signature license registration product activation slack discord telegram teams notify pushover dynatrace grafana influx "
    "splunk honeycomb elastic snyk sonar npm pypi docker github gitlab bitbucket digitalocean linode hetzner vultr cloudflare "
    "fastly heroku netlify vercel render supabase planetscale databricks snowflake mapbox airtable notion asana linear jira".split()
)
"""Words before `key` that make it a secret; `_DULL_KEYS` come first."""
_DULL_KEYS = frozenset(
    "graph fingerprint digest checksum primary foreign sort cache partition state missing unexpected dict hash row index group "
    "join lookup map "
    "config metric sample "
    "public kernel dataset object bucket tensor layer param parameter weight query value attention kv q k v record field "
    "column hot store "
    "pub answer label image text input output feature idempotency dedup order natural composite unique shard env".split()
)
_DULL_TOKENS = frozenset(
    "pad eos bos unk sep cls mask special stop image next prev previous per max min num number n total last first "
    "prompt completion "
    "extra additional begin end start audio video tool think boundary word sub vocab new each every input output generated "
    "unexpected invalid unknown decoder encoder forced suppress bytes byte tokens pool class patch register time".split()
)
_GLUED_KEYS = frozenset(
    "api access secret private account auth ssh master license licence encryption shared signing routing service "
    "storage client deploy "
    "app consumer session security subscription integration hmac pass".split()
)
_DULL_PASSES = frozenset(
    "forward backward first second third single multi one two per last next test tests all by num n i max compiler "
    "fusion optimization "
    "graph fx pre post grad did does must not each every another full final initial warmup eval train checks check hlo".split()
)
_GLUED_PASS = frozenset(
    "require ssh db user smtp mail ftp my admin root ldap sudo become pg login http proxy redis keystore store key".split()
)


@lru_cache(maxsize=4096)
def strength_of(name: str) -> Strength:
    """Return how much the name of a variable, field, option or header says that its value is a secret.

    Args:
        name: An identifier in any style: `HF_TOKEN`, `clientSecret`, `db.password`, `X-Api-Key`.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and (words[-1] in _TRAILING or words[-1].isdigit()):
        words.pop()
    if not words:
        return Strength.NONE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    loud = name.isupper() and len(words) > 1
    if last == "data" and before in ("key", "token"):  # kubeconfig: client-key-data
        return Strength.STRONG
    if (before == "pass" and last in ("word", "phrase", "code")) or words[-3:] == ["mot", "de", "passe"]:
        return Strength.PASSWORD
    for ending, judge in _JUDGES:
        if last.endswith(ending):
            return judge(last.removesuffix(ending), before, loud)
    return Strength.NONE


_TRAILING = frozenset(
    "value string str b64 base64 raw text plain plaintext prod production dev test staging new old current default secondary "
    "hash hashed encoded encrypted header env id b prefix live sandbox".split()
)


def _judge_password(_glued: str, _before: str, _loud: bool) -> Strength:
    return Strength.PASSWORD


def _judge_strong(_glued: str, _before: str, _loud: bool) -> Strength:
    return Strength.STRONG


def _judge_medium(glued: str, _before: str, loud: bool) -> Strength:
    return Strength.STRONG if loud and not glued else Strength.MEDIUM


def _judge_token(glued: str, before: str, loud: bool) -> Strength:
    if (glued or before) in _DULL_TOKENS:
        return Strength.WEAK
    return Strength.STRONG if loud or glued or before else Strength.MEDIUM


def _judge_key(glued: str, before: str, loud: bool) -> Strength:
    if glued:
        return Strength.STRONG if glued in _GLUED_KEYS else Strength.NONE
    if before in _DULL_KEYS:
        return Strength.NONE
    return Strength.STRONG if loud or before in _KEY_OF_SECRETS else Strength.WEAK


def is_dull_key(word: str) -> bool:
    """Tell whether a word before `key` says that it is the key of a table, a cache or a graph."""
    words = _WORDS.findall(word)
    return bool(words) and words[-1].lower() in _DULL_KEYS


def _judge_pass(glued: str, before: str, loud: bool) -> Strength:
    if glued:
        return Strength.PASSWORD if glued in _GLUED_PASS else Strength.NONE
    if before in _DULL_PASSES:
        return Strength.NONE
    return Strength.PASSWORD if loud or before else Strength.MEDIUM


def _judge_short(glued: str, _before: str, loud: bool) -> Strength:
    if glued:
        return Strength.NONE
    return Strength.STRONG if loud else Strength.WEAK


_JUDGES = (
    *((ending, _judge_password) for ending in _PASSWORDS),
    *((ending, _judge_strong) for ending in _STRONG),
    *((ending, _judge_medium) for ending in _MEDIUM),
    ("token", _judge_token),
    ("pass", _judge_pass),
    ("key", _judge_key),
    ("keys", _judge_key),
    ("pat", _judge_short),
    ("sig", _judge_short),
    ("signature", _judge_short),
    ("hmac", _judge_short),
    ("salt", _judge_short),
    ("license", _judge_short),
    ("community", _judge_short),
    ("dsn", _judge_short),
)

_NUMBER = re.compile(r"[-+]?(?:0x)?[0-9][0-9_,]{0,24}(?:\.[0-9]{0,20})?(?:e[-+]?[0-9]{1,4})?%?", re.IGNORECASE | re.ASCII)
_PLACEHOLDER = re.compile(
    r"\[redacted\].*|<[^<>]{0,80}>|\*{1,200}|\.{2,200}|-{1,200}|_{2,200}|[xX]{3,200}|[#?]{1,200}|\$\{?\w{1,80}\}?(?:[:/.-].{0,200})?|\$\{\{.{0,200}|\$\(.{0,300}"
    r"|\{\{.{0,200}|\{[\w.!:]{0,80}\}|%\(?\w{0,40}\)?[sdr]?|`[^`]{0,200}`?|\(?(?:hidden|masked|redacted|removed|filtered|omitted|sensitive)\)?",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:~|\.{1,2}|[a-z]:)?/(?:[\w.@%{}$-]{1,64}/){0,12}[\w.@%{}$*-]{0,64}", re.IGNORECASE | re.ASCII)
_WORD_LIKE = re.compile(r"[A-Za-z]{1,40}(?:[._/-][A-Za-z]{1,40}){0,8}", re.ASCII)
_CODE = re.compile(
    r"(?:self|args|cfg|config|conf|os|settings|opts?|kwargs|ctx|context|env|this|params?)\.[\w.]{1,80}.{0,200}"
    r"|[A-Za-z_][\w.]{0,80}[(\[](?:[\w.,=*\[(-]{0,200}|.{0,400}[)\]][\w.,;:)\]]{0,80})|\[[A-Z_<]{1,60}[>\]]{1,4}|(?:Optional|Union|List|Dict|str|int|bytes|bool|float|None|object|Any)\b.{0,100}",
    re.ASCII,
)

_PROSE = frozenset(
    "a an and any are as at be been before being but by can cannot could did do does enabled disabled empty error "
    "errors exists expected expired "
    "expires expire fail failed failure file files for found from get given got has have if in incorrect input "
    "into invalid is it its "
    "length malformed manager match mismatch missing must needed new no none not null nil of off ok on only option "
    "or out per please "
    "prefix prompt provided read refresh refreshed rejected required requires revoked set should skipped string "
    "success that the then "
    "there this to true false type undefined unknown unset unsupported updated use used user using valid validated "
    "validation value "
    "verified verification was were write will with without wrong yes your you auto default defaults basic bearer digest negotiate "
    "pour für para voor por "
    "kerberos gssapi ldap oauth oauth2 password passwd token secret key login local optional denied info warn warning debug "
    "error: traceback critical fatal notice module class function object str int bytes bool float dict list tuple".split()
)
_NAMED_VALUE = re.compile(
    r"(?:[A-Za-z0-9_.]{0,64}[_.])?(?:password|passwd|passphrase|secret|token|key|auth|credentials?|creds|pwd)s?\Z", re.IGNORECASE
)


def is_secret_value(value: str, strength: Strength) -> bool:
    """Tell whether a value behind a name of some strength is to be hidden.

    Args:
        value: Without its quotes, at most a few thousand characters.
        strength: Of its name.
    """
    if strength is Strength.NONE or is_harmless(value):
        return False
    if strength is Strength.PASSWORD:
        return not _is_prose(value)
    if _is_number(value):
        return False
    if strength is Strength.STRONG:
        return not _is_prose(value)
    if strength is Strength.MEDIUM:
        return len(value) >= 6 and _is_mixed(value) and not _AMOUNT.fullmatch(value)
    return looks_random(value, 16) and not _UUID.fullmatch(value)


_AMOUNT = re.compile(r"\d{1,12}(?:[.,]\d{1,12})?[A-Za-zµ%/]{1,5}[.,;]?")
"""`65.7s`, `12GiB`."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_harmless(value: str) -> bool:
    """Tell whether a value can be no secret: empty, a placeholder, a variable, a path, a call, a type."""
    if len(value) < 2 or _PLACEHOLDER.fullmatch(value) or value.startswith(("[{", "{{", "[]")):
        return True
    if _PATH.fullmatch(value) and not looks_random(value.rpartition("/")[2], 20):
        return True
    if value.lower() in _SWITCHES:
        return True
    return _CODE.fullmatch(value) is not None


_SWITCHES = frozenset(
    "true false none null nil yes no on off undefined nan inf empty unset n/a default auto <pad> "
    "str string same-origin include omit".split()
)


def _is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None


def _is_prose(value: str) -> bool:
    """Tell whether a value is a word of a sentence or the name of a variable that holds a secret."""
    bare = value.rstrip(".,:;!?)")
    if bare.lower() in _PROSE:
        return True
    return _NAMED_VALUE.match(bare) is not None and _WORD_LIKE.fullmatch(bare.replace("_", ".")) is not None


def _is_mixed(value: str) -> bool:
    """Tell whether a value has digits among letters, or capitals and small letters in no order of words."""
    if _WORD_LIKE.fullmatch(value):
        return switches(value) * 4 >= len(value)
    return _LETTER.search(value) is not None and _DIGIT.search(value) is not None


_LETTER, _DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")


_RUNS = re.compile(r"[A-Za-z0-9+/=_~]{8,}", re.ASCII)


_HEX = re.compile(r"(?:[0-9a-f]{32,512}|[0-9A-F]{32,512})")


def looks_random(value: str, least: int) -> bool:
    """Tell whether a value holds a run of letters and digits that no word, number or file name has.

    Args:
        value: Any text; what stands behind its first 4,096 characters does not count.
        least: Characters of the run.
    """
    for match in _RUNS.finditer(value[:4096]):
        run = match.group()
        if _HEX.fullmatch(run) and not run.isdigit():
            return True
        if len(run) >= least and switches(run[:256]) * 5 >= min(len(run), 256) and len(set(run[:256])) >= min(8, least // 2):
            return True
    return False


def switches(run: str) -> int:
    """Return how often the kind of sign changes: small letter, capital, digit; a capital before small letters is one word."""
    count = 0
    kind = ""
    for sign in run:
        new = "a" if sign.islower() else "A" if sign.isupper() else "0" if sign.isdigit() else "-"
        count += new not in (kind, "-") and kind not in ("", "-")
        kind = new
    return count
