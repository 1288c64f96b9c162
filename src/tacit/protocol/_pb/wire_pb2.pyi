from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Spend(_message.Message):
    __slots__ = ("sampling_rate", "noise_multiplier", "count", "mechanism", "side")
    class Side(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BOTH: _ClassVar[Spend.Side]
        TRAINING: _ClassVar[Spend.Side]
        HELD_OUT: _ClassVar[Spend.Side]
    BOTH: Spend.Side
    TRAINING: Spend.Side
    HELD_OUT: Spend.Side
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    sampling_rate: float
    noise_multiplier: float
    count: int
    mechanism: str
    side: Spend.Side
    def __init__(self, sampling_rate: _Optional[float] = ..., noise_multiplier: _Optional[float] = ..., count: _Optional[int] = ..., mechanism: _Optional[str] = ..., side: _Optional[_Union[Spend.Side, str]] = ...) -> None: ...

class Charged(_message.Message):
    __slots__ = ("count", "head")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    count: int
    head: bytes
    def __init__(self, count: _Optional[int] = ..., head: _Optional[bytes] = ...) -> None: ...

class Terms(_message.Message):
    __slots__ = ("mechanism", "sampling_rate", "noise_multiplier")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    sampling_rate: float
    noise_multiplier: float
    def __init__(self, mechanism: _Optional[str] = ..., sampling_rate: _Optional[float] = ..., noise_multiplier: _Optional[float] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("epsilon", "delta", "mechanism", "noise_variance", "clip_min", "clip_max", "spent", "charged", "refusals", "refusal", "definition", "looked")
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    CLIP_MIN_FIELD_NUMBER: _ClassVar[int]
    CLIP_MAX_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    CHARGED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    epsilon: float
    delta: float
    mechanism: str
    noise_variance: float
    clip_min: float
    clip_max: float
    spent: _containers.RepeatedCompositeFieldContainer[Spend]
    charged: Charged
    refusals: int
    refusal: str
    definition: str
    looked: int
    def __init__(self, epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., mechanism: _Optional[str] = ..., noise_variance: _Optional[float] = ..., clip_min: _Optional[float] = ..., clip_max: _Optional[float] = ..., spent: _Optional[_Iterable[_Union[Spend, _Mapping]]] = ..., charged: _Optional[_Union[Charged, _Mapping]] = ..., refusals: _Optional[int] = ..., refusal: _Optional[str] = ..., definition: _Optional[str] = ..., looked: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("step", "request", "rows")
    STEP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    step: int
    request: int
    rows: bytes
    def __init__(self, step: _Optional[int] = ..., request: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("base_version", "clip", "spent", "charged", "scale", "part", "steps", "look")
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    CHARGED_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    base_version: int
    clip: float
    spent: _containers.RepeatedCompositeFieldContainer[Spend]
    charged: Charged
    scale: float
    part: Part
    steps: int
    look: int
    def __init__(self, base_version: _Optional[int] = ..., clip: _Optional[float] = ..., spent: _Optional[_Iterable[_Union[Spend, _Mapping]]] = ..., charged: _Optional[_Union[Charged, _Mapping]] = ..., scale: _Optional[float] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., steps: _Optional[int] = ..., look: _Optional[int] = ...) -> None: ...

class Retired(_message.Message):
    __slots__ = ("reason", "spent", "charged")
    REASON_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    CHARGED_FIELD_NUMBER: _ClassVar[int]
    reason: str
    spent: _containers.RepeatedCompositeFieldContainer[Spend]
    charged: Charged
    def __init__(self, reason: _Optional[str] = ..., spent: _Optional[_Iterable[_Union[Spend, _Mapping]]] = ..., charged: _Optional[_Union[Charged, _Mapping]] = ...) -> None: ...

class GlobalModel(_message.Message):
    __slots__ = ("version", "clip", "terms", "look")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    version: int
    clip: float
    terms: Terms
    look: int
    def __init__(self, version: _Optional[int] = ..., clip: _Optional[float] = ..., terms: _Optional[_Union[Terms, _Mapping]] = ..., look: _Optional[int] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("life", "seq", "counts")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LIFE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    life: int
    seq: int
    counts: _containers.ScalarMap[str, int]
    def __init__(self, life: _Optional[int] = ..., seq: _Optional[int] = ..., counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("life", "seq", "counts")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LIFE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    life: int
    seq: int
    counts: _containers.ScalarMap[str, int]
    def __init__(self, life: _Optional[int] = ..., seq: _Optional[int] = ..., counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class Missing(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class Roster(_message.Message):
    __slots__ = ("names", "records")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    records: int
    def __init__(self, names: _Optional[bytes] = ..., records: _Optional[int] = ...) -> None: ...

class Feedback(_message.Message):
    __slots__ = ("iteration", "step", "rows")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    step: int
    rows: int
    def __init__(self, iteration: _Optional[int] = ..., step: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("number", "rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    rows: bytes
    def __init__(self, number: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class Halt(_message.Message):
    __slots__ = ("version", "reason")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    version: int
    reason: str
    def __init__(self, version: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("edge",)
    EDGE_FIELD_NUMBER: _ClassVar[int]
    edge: str
    def __init__(self, edge: _Optional[str] = ...) -> None: ...

class Deadline(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("status", "reason", "retry_after_s", "last_seq", "missing", "proof")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Receipt.Status]
        ACCEPTED: _ClassVar[Receipt.Status]
        DUPLICATE: _ClassVar[Receipt.Status]
        STALE: _ClassVar[Receipt.Status]
        REJECTED: _ClassVar[Receipt.Status]
        BUSY: _ClassVar[Receipt.Status]
        PARTIAL: _ClassVar[Receipt.Status]
    UNKNOWN: Receipt.Status
    ACCEPTED: Receipt.Status
    DUPLICATE: Receipt.Status
    STALE: Receipt.Status
    REJECTED: Receipt.Status
    BUSY: Receipt.Status
    PARTIAL: Receipt.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    status: Receipt.Status
    reason: str
    retry_after_s: float
    last_seq: int
    missing: _containers.RepeatedScalarFieldContainer[int]
    proof: bytes
    def __init__(self, status: _Optional[_Union[Receipt.Status, str]] = ..., reason: _Optional[str] = ..., retry_after_s: _Optional[float] = ..., last_seq: _Optional[int] = ..., missing: _Optional[_Iterable[int]] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("seq", "proof")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    seq: int
    proof: bytes
    def __init__(self, seq: _Optional[int] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Want(_message.Message):
    __slots__ = ("head", "missing", "lost")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    head: bytes
    missing: _containers.RepeatedScalarFieldContainer[int]
    lost: bool
    def __init__(self, head: _Optional[bytes] = ..., missing: _Optional[_Iterable[int]] = ..., lost: _Optional[bool] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ("epoch", "state", "version", "model_sha256", "model_bytes", "url")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    state: str
    version: int
    model_sha256: str
    model_bytes: int
    url: str
    def __init__(self, epoch: _Optional[int] = ..., state: _Optional[str] = ..., version: _Optional[int] = ..., model_sha256: _Optional[str] = ..., model_bytes: _Optional[int] = ..., url: _Optional[str] = ...) -> None: ...

class Meta(_message.Message):
    __slots__ = ("run", "edge", "seq", "dtype", "numel", "sha256", "schema_hash", "answer", "answered", "held", "xxh3", "reads", "apart", "hello", "update", "retired", "model", "halt", "receipt", "announcement", "deadline", "want", "proposal", "exchanged", "share", "missing", "roster", "feedback", "request", "release")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NUMEL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_HASH_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    XXH3_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    APART_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HALT_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    EXCHANGED_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    run: str
    edge: str
    seq: int
    dtype: str
    numel: int
    sha256: bytes
    schema_hash: bytes
    answer: Receipt
    answered: int
    held: Held
    xxh3: bytes
    reads: int
    apart: int
    hello: Hello
    update: Update
    retired: Retired
    model: GlobalModel
    halt: Halt
    receipt: Receipt
    announcement: Announcement
    deadline: Deadline
    want: Want
    proposal: Proposal
    exchanged: Answer
    share: Share
    missing: Missing
    roster: Roster
    feedback: Feedback
    request: Request
    release: Release
    def __init__(self, run: _Optional[str] = ..., edge: _Optional[str] = ..., seq: _Optional[int] = ..., dtype: _Optional[str] = ..., numel: _Optional[int] = ..., sha256: _Optional[bytes] = ..., schema_hash: _Optional[bytes] = ..., answer: _Optional[_Union[Receipt, _Mapping]] = ..., answered: _Optional[int] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., xxh3: _Optional[bytes] = ..., reads: _Optional[int] = ..., apart: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., update: _Optional[_Union[Update, _Mapping]] = ..., retired: _Optional[_Union[Retired, _Mapping]] = ..., model: _Optional[_Union[GlobalModel, _Mapping]] = ..., halt: _Optional[_Union[Halt, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., announcement: _Optional[_Union[Announcement, _Mapping]] = ..., deadline: _Optional[_Union[Deadline, _Mapping]] = ..., want: _Optional[_Union[Want, _Mapping]] = ..., proposal: _Optional[_Union[Proposal, _Mapping]] = ..., exchanged: _Optional[_Union[Answer, _Mapping]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., missing: _Optional[_Union[Missing, _Mapping]] = ..., roster: _Optional[_Union[Roster, _Mapping]] = ..., feedback: _Optional[_Union[Feedback, _Mapping]] = ..., request: _Optional[_Union[Request, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ...) -> None: ...
