"""An envelope, made and read: magic, length of the Meta, the Meta, zeros, the tensor."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import struct
from dataclasses import dataclass

import torch
from google.protobuf.message import DecodeError
from torch import Tensor
from xxhash import xxh3_128_digest

from tacit.errors import WireError, other_format
from tacit.protocol import int16
from tacit.protocol._pb import wire_pb2 as pb

MAGIC = b"TCT1"
_NUMPY = {"f32": "<f4", "i32": "<i4"}
_TORCH = {"f32": torch.float32, "i32": torch.int32}
_FORMAT = 2  # in Meta.reads: what a sender writes, and understands; tacit 0.1 wrote none
MAX_META = 1 << 20
HEAD = struct.Struct("<4sI")  # magic, length of the Meta


def tensor_at(head: bytes | bytearray | memoryview | mmap.mmap) -> int:
    """Return the offset of the tensor, by the first eight bytes.

    It is behind the Meta, at a multiple of 64.
    """
    end: int = HEAD.size + HEAD.unpack_from(head)[1]
    return end + -end % 64


@dataclass(frozen=True, slots=True)
class InPlace:
    """An envelope whose tensor stays where it is: nothing may be written into that meanwhile."""

    front: bytes  # all before the tensor
    tensor: memoryview

    def __len__(self) -> int:
        return len(self.front) + len(self.tensor)

    def between(self, begin: int, end: int) -> tuple[bytes, memoryview]:
        """Return the bytes from `begin` to before `end`, in two pieces."""
        at = len(self.front)
        return self.front[begin:end], self.tensor[max(0, begin - at) : max(0, end - at)]

    @property
    def pieces(self) -> tuple[bytes, memoryview]:
        """All of it, in two pieces."""
        return self.front, self.tensor

    def whole(self) -> bytes:
        """Return all of it; the tensor is copied."""
        return b"".join(self.pieces)


class Growing(bytearray):
    """An envelope to which bytes are only added."""

    @property
    def filled(self) -> int:
        """How many bytes have come."""
        return len(self)

    def grow(self, more: bytes | memoryview) -> None:
        """Add bytes at the end."""
        self.extend(more)


class GrowingMap(mmap.mmap):
    """A long envelope that grows, in memory of its own; the system gets it back all at once.

    It takes memory for what has come, in huge pages where the system lends them. filled: the bytes
    that have come. Only `grow` may change it before it is whole.
    """

    filled: int

    @classmethod
    def of(cls, begun: Growing, size: int) -> GrowingMap:
        """Return a map of `size` bytes that continues `begun`."""
        flags = (
            {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        )
        grown = cls(-1, size, **flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                grown.madvise(mmap.MADV_HUGEPAGE)
        grown[: len(begun)] = bytes(begun)
        grown.filled = len(begun)
        return grown

    def grow(self, more: bytes | memoryview) -> None:
        """Add bytes at the end. Raises WireError for more than it has room for."""
        end = self.filled + len(more)
        if end > len(self):
            raise WireError("length", f"more than {len(self)} bytes")
        self[self.filled : end] = more
        self.filled = end


Whole = Growing | GrowingMap


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded envelope: its Meta, and its tensor, a view of the bytes unless they are int16.

    tensor: (numel,) float32 or int32; None if the message has none.
    """

    meta: pb.Meta
    tensor: Tensor | None


def encode(meta: pb.Meta, tensor: Tensor | None = None) -> bytes:
    """Return one envelope. Size, checksum and dtype of `tensor` are filled into `meta`.

    tensor: (numel,) float32 or int32, on the CPU. The envelope is the only copy of it that is made.
    Integers go as int16 if that is shorter (int16.py). The checksum is XXH3, which detects damage.
    It does not help against forgers, as it has no key.

    >>> meta = pb.Meta(run="demo", share=pb.Share(round=3))
    >>> payload = encode(meta, torch.tensor([0.5, -1.0]))
    >>> received = decode(payload)
    >>> received.meta.run, received.meta.share.round, received.tensor
    ('demo', 3, tensor([ 0.5000, -1.0000]))
    >>> try:
    ...     decode(payload[:-1] + b"!")
    ... except WireError as error:
    ...     print(error.reason)
    xxh3
    """
    return encode_in_place(meta, tensor).whole()


def encode_in_place(meta: pb.Meta, tensor: Tensor | None = None) -> InPlace:
    """Encode as `encode`, but do not copy the tensor, unless it is made narrower."""
    body = memoryview(b"")
    meta.reads = _FORMAT
    if tensor is not None:
        meta.dtype, meta.apart, body = _body(tensor)
        meta.numel = tensor.numel()
        meta.sha256 = b""
        meta.xxh3 = xxh3_128_digest(body)
    head = meta.SerializeToString(deterministic=True)  # a map's order is else the process's own
    padding = -(HEAD.size + len(head)) % 64
    return InPlace(b"".join((HEAD.pack(MAGIC, len(head)), head, bytes(padding))), body)


def _body(tensor: Tensor) -> tuple[str, int, memoryview]:
    """Return how `tensor` is sent: its dtype, the count of numbers sent apart, and its bytes."""
    if tensor.dtype != torch.int32:
        return "f32", 0, numbers(tensor)
    packed = int16.packed(tensor)
    if packed is None:
        return ("i32", 0, numbers(tensor, "i32"))
    return ("i16", packed[1], packed[0])


def numbers(tensor: Tensor, dtype: str = "f32") -> memoryview:
    """Return the little-endian bytes of a tensor, without a copy on a little-endian machine."""
    flat = tensor.detach().contiguous().numpy().astype(_NUMPY[dtype], copy=False).reshape(-1)
    return flat.view("u1").data


def decode(
    payload: bytes | bytearray | memoryview | mmap.mmap,
    *,
    checked: bool = False,
    most: int | None = None,
) -> Received:
    """Return the envelope in `payload`. A tensor of int16 is widened, and no other is copied.

    Raises WireError for anything else.

    checked: these very bytes were accepted once, and a checksum shows that they are the same. So
    the digest of the tensor is not computed again. most: how many numbers may be made wider.
    Reasons: magic, length, meta, format, dtype, numel, shape, sha256, xxh3, apart, finite.
    """
    view = memoryview(payload)
    if len(view) < HEAD.size or bytes(view[:4]) != MAGIC:
        raise WireError("magic", f"{len(view)} bytes that do not begin with {MAGIC.decode()}")
    length = HEAD.unpack_from(view)[1]
    start = tensor_at(view)
    if length > MAX_META or start > len(view):
        raise WireError("length", f"meta of {length} bytes in a payload of {len(view)}")
    meta = pb.Meta()
    try:
        meta.ParseFromString(bytes(view[HEAD.size : HEAD.size + length]))
    except DecodeError as error:
        raise WireError("meta", str(error)) from error
    if meta.WhichOneof("kind") is None:
        raise WireError("meta", "no kind that this version knows")
    if meta.reads < _FORMAT:  # a newer one says that it understands this one, too
        raise WireError("format", f"the message {other_format(meta.reads or None, _FORMAT)}")
    return Received(meta, _tensor(meta, view[start:], checked=checked, most=most))


def has_tensor(payload: bytes | bytearray | mmap.mmap) -> bool:
    """Check whether an envelope is longer than its Meta, by its first eight bytes alone."""
    if len(payload) < HEAD.size:
        return False
    return len(payload) > tensor_at(payload)


def _tensor(meta: pb.Meta, body: memoryview, *, checked: bool, most: int | None) -> Tensor | None:
    if meta.apart and not (meta.dtype == "i16" and int16.shorter(meta.numel, meta.apart)):
        raise WireError("apart", f"{meta.apart} numbers of {meta.numel} {meta.dtype[:20]!r}")
    if meta.dtype == "" and meta.numel == 0 and len(body) == 0:
        return None
    integers = meta.dtype in ("i32", "i16") and meta.WhichOneof("kind") == "update"
    if meta.dtype != "f32" and not integers:
        raise WireError("dtype", f"{meta.dtype[:20]!r}: expected f32, or i32 or i16 in an update")
    short = meta.dtype == "i16"
    if short:
        size = int16.size(meta.numel, meta.apart)
    else:
        size = 4 * meta.numel
    if size != len(body) or meta.numel == 0:
        raise WireError("numel", f"{meta.numel} elements in {len(body)} bytes")
    if short and most is not None and meta.numel > most:
        raise WireError("shape", f"{meta.numel} elements, {most} are of use")
    if not checked:
        _check(meta, body)
    if short:
        return int16.unpacked(body, meta.numel, meta.apart)
    tensor = torch.frombuffer(
        body if not body.readonly else bytearray(body), dtype=_TORCH[meta.dtype]
    )
    if meta.dtype == "f32" and not _finite(tensor):
        raise WireError("finite", "the tensor holds inf or nan")
    return tensor


def _check(meta: pb.Meta, body: memoryview) -> None:
    """Raise WireError where a tensor's bytes are not those that its sender has counted.

    tacit 0.2 counts by SHA-256 where it does not know its receiver.
    """
    if meta.xxh3:
        if xxh3_128_digest(body) != meta.xxh3:
            raise WireError("xxh3", "the tensor bytes do not match their checksum")
    elif hashlib.sha256(body).digest() != meta.sha256:
        raise WireError("sha256", "the tensor bytes do not match their digest")


def _finite(tensor: Tensor) -> bool:
    """Check whether every number is finite: the least and the largest are, and nan is both."""
    least, largest = torch.aminmax(tensor)
    return bool(torch.isfinite(least) & torch.isfinite(largest))
