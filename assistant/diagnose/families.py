"""What an exception that no list knows says by the words of its name, by the library that defines it, or by an HTTP status.

`petastorm.errors.PetastormMetadataError` is about data, `vendor.CheckpointCorrupted` about a checkpoint, `OSError: Forbidden: https://…`
about rights: the words of the trade are few, the classes without number.
"""

from __future__ import annotations

import re

_LIBRARIES = (
    ("permission_error", {"auth", "msal", "jwt", "gssapi", "hvac", "oauth2client"}),
    (
        "dataset_loading_error",
        {
            "petastorm", "webdataset", "lhotse", "lmdb", "tfrecord", "tarfile", "datasets", "streaming", "pyarrow", "fastparquet",
            "energon", "litdata", "ffcv", "torchdata", "zarr", "h5py", "soundfile", "torchaudio", "decord", "av", "PIL",
            "zstandard", "nibabel", "pydicom", "rasterio", "tifffile",
        },
    ),
    ("model_loading_error", {"safetensors", "orbax", "tensorstore", "dist_checkpointing", "gguf", "zipfile"}),
    (
        "s3_storage_error",
        {"boto3", "botocore", "aiobotocore", "s3transfer", "s3fs", "gcsfs", "adlfs", "minio", "oss2", "azure", "petrel_client"},
    ),
    (
        "connection_error",
        {"requests", "urllib3", "httpx", "aiohttp", "httpcore", "redis", "etcd3", "pymongo", "psycopg2", "kazoo", "zmq", "wandb"},
    ),
    ("argument_error", {"argparse", "click", "typer", "fire", "simple_parsing", "tyro", "jsonargparse", "absl"}),
    ("syntax_error", {"yaml", "ruamel", "tomllib", "toml", "hjson"}),
)  # fmt: skip
_WORDS = (
    ("permission_error", r"Credential|Unauthori[sz]ed|Forbidden|Denied|Authenticat|InvalidToken|GatedRepo"),
    ("file_not_found_error", r"NotFound|NoSuch(?:File|Key|Path)|DoesNotExist|Missing(?:File|Path)"),
    ("model_loading_error", r"Checkpoint|StateDict|Tokenizer(?:Load|Format)|WeightsLoad"),
    ("dataset_loading_error", r"Dataset|DataLoad|Shard(?:Error|Exception|Corrupt|Missing|Read|Decode)|Parquet"
     r"|TFRecord|Metadata|Manifest|Corrupt|Decod|ReadError|Unidentified"),
    ("out_of_memory_error", r"OutOfMemory|OOM|Alloc(?:ation)?(?:Error|Failed)|ResourceExhausted"),
    ("s3_storage_error", r"Storage|Bucket|S3|Blob|ObjectStore"),
    ("connection_error", r"Time(?:d?out|Out)|Unavailable|Unreachable|Refused|Disconnect|Connect|Rendezvous|Throttl"
     r"|RateLimit|TooManyRequests"),
    ("argument_error", r"Argument|Usage|Option(?:Error|Exception)|MissingMandatory|CommandLine"),
    ("value_error", r"Config|Validation|Invalid|Unsupported|Mismatch"),
    ("called_process_error", r"Subprocess|Compil(?:e|ation)|Build(?:Error|Failed)"),
)  # fmt: skip
_PATTERNS = tuple((reason, re.compile(words)) for reason, words in _WORDS)
_BEARS_HTTP = re.compile(
    r"Http|HTTP|Api|API|Service|Client|Response|Request|Storage|Status|Hub|Server|Refresh|^(?:OSError|IOError|RuntimeError|Exception)$"
)
_HTTP = re.compile(
    r"\b(?:(?P<code>[45]\d\d) (?:(?:Client|Server) Error|Forbidden\b|Unauthorized\b|Not Found\b|Service Unavailable\b"
    r"|Bad Gateway\b|Gateway Time-?out\b|Too Many Requests\b|Internal Server Error\b)"
    r"|(?:status(?:[ _]code)?|HTTP(?:/\d(?:\.\d)?)?(?: response)?(?: (?:error|code|status))*)['\"]?"
    r"[ :=]*(?P<told>[45]\d\d)\b)"
    r"|^(?P<word>Forbidden|Unauthorized|Too Many Requests|Service Unavailable|Bad Gateway|Gateway Time-?out|Internal Server Error"
    r"|Access Denied)\b"
)
_CODES = {
    "401": "permission_error",
    "403": "permission_error",
    "404": "file_not_found_error",
    "407": "permission_error",
    "410": "file_not_found_error",
    "Forbidden": "permission_error",
    "Unauthorized": "permission_error",
    "Access Denied": "permission_error",
}


def by_words(name: str) -> str | None:
    """Return the reason that an exception's name speaks for: the words of the class first, then the library; None without any.

    Args:
        name: With its module, as the traceback prints it.
    """
    parts = name.split(".")
    for reason, words in _PATTERNS:
        if words.search(parts[-1]):
            return reason
    return next((reason for reason, libraries in _LIBRARIES if libraries & set(parts[:-1])), None)


def by_http_status(short: str, text: str) -> tuple[str, str] | None:
    """Return the reason and the status that an HTTP answer speaks for; None where the exception tells no status.

    Args:
        short: Class of the exception without its module.
        text: Its message.
    """
    match = _HTTP.search(text[:600]) if _BEARS_HTTP.search(short) else None
    if match is None:
        return None
    status = match["code"] or match["told"] or match["word"]
    if status in _CODES:
        return _CODES[status], f"status {status}"
    later = status[0] == "5" or status in ("408", "425", "429") or not status[0].isdigit()
    return ("connection_error" if later else "value_error"), f"status {status}"
