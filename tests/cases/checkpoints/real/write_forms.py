# mypy: ignore-errors
"""Write forms.tar.gz: one small state in each form that a program may write under any suffix, by the libraries themselves.

python -m venv v; v/bin/pip install lz4 msgpack h5py joblib cloudpickle zstandard safetensors flax numpy torch
v/bin/python write_forms.py forms.tar.gz
"""

import io
import pickle
import sys
import tarfile

import cloudpickle
import flax.serialization
import h5py
import joblib
import lz4.frame
import msgpack
import numpy as np
import safetensors.numpy
import torch
import zstandard

STEPS = (10, 20, 30)


def state(step):
    random = np.random.default_rng(step)
    return {"step": step, "weights": {f"layer{n}": random.standard_normal(300).astype("f4") for n in range(4)}}


def into(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def hdf5(stream, value):
    with h5py.File(stream, "w") as file:
        file.attrs["step"] = value["step"]
        for name, array in value["weights"].items():
            file[name] = array


def tensors(value):
    weights = {name: torch.from_numpy(array) for name, array in value["weights"].items()}
    return {"step": value["step"], "model": weights, "half": torch.ones(33).bfloat16(), "mask": torch.ones(5, dtype=torch.bool)}


FORMS = {
    "lz4": lambda value: lz4.frame.compress(pickle.dumps(value)),
    "lz4_checksums": lambda value: lz4.frame.compress(pickle.dumps(value), content_checksum=True, block_checksum=True),
    "zstd": lambda value: zstandard.ZstdCompressor().compress(pickle.dumps(value)),
    "zstd_checksum": lambda value: zstandard.ZstdCompressor(write_checksum=True).compress(pickle.dumps(value)),
    "msgpack": lambda value: msgpack.packb({"step": value["step"], "w": [array.tobytes() for array in value["weights"].values()]}),
    "flax": lambda value: flax.serialization.to_bytes({"step": value["step"], "params": value["weights"]}),
    "hdf5": lambda value: into(lambda stream: hdf5(stream, value)),
    "joblib": lambda value: into(lambda stream: joblib.dump(value, stream)),
    "joblib_zlib": lambda value: into(lambda stream: joblib.dump(value, stream, compress=("zlib", 3))),
    "cloudpickle": cloudpickle.dumps,
    "safetensors": lambda value: safetensors.numpy.save(value["weights"]),
    "npy": lambda value: into(lambda stream: [np.save(stream, array) for array in value["weights"].values()]),
    "torch_legacy": lambda value: into(lambda stream: torch.save(tensors(value), stream, _use_new_zipfile_serialization=False)),
    "torch_zip": lambda value: into(lambda stream: torch.save(tensors(value), stream)),
}

with tarfile.open(sys.argv[1], "w:gz") as archive:
    for form, write in FORMS.items():
        for step in STEPS:
            content = write(state(step))
            member = tarfile.TarInfo(f"forms/{form}/step_{step}.pt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
