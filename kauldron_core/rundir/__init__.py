"""The run directory: every file format of a sweep, written so that a kill at any moment leaves it readable."""

from kauldron_core.errors import DamagedFile
from kauldron_core.rundir import formats
from kauldron_core.rundir.atomic import (
    begin_use,
    create_exclusive,
    in_use,
    make_folder,
    remove_temporaries,
    try_writing,
    write_atomic,
    write_json,
)
from kauldron_core.rundir.backlog import Backlog, RunWatch
from kauldron_core.rundir.committed import POINTER_FILE, committed_steps, is_committed, pack_of, saved_at_s
from kauldron_core.rundir.damages import damages
from kauldron_core.rundir.events import (
    INHERITED,
    RESUMED_FROM,
    Event,
    EventFollower,
    EventWriter,
    list_segments,
    measured,
    read_events,
)
from kauldron_core.rundir.examples import read_examples, write_examples
from kauldron_core.rundir.finding import find_one_trial, find_trial, find_trials
from kauldron_core.rundir.json_text import dumps, strict
from kauldron_core.rundir.layout import FORMAT, PackDir, RunDir, TrialDir
from kauldron_core.rundir.leases import Holder, Lease, read_holder
from kauldron_core.rundir.ledger import Strategy, Wanted, due, has_ended
from kauldron_core.rundir.lock import RunLock, is_locked
from kauldron_core.rundir.names import (
    check_name,
    check_path,
    from_pointer,
    local_path,
    refuse_address,
    to_pointer,
    with_home,
)
from kauldron_core.rundir.pending import (
    DEFAULT_MAX_PENDING,
    Pending,
    awaited_steps,
    is_watched_by_run,
    read_pending,
    run_watch_path,
    watch_path,
    work_path,
    write_pending,
)
from kauldron_core.rundir.probe import check_probe, write_probe
from kauldron_core.rundir.ranking import (
    BETTER,
    MODES,
    TRAINING_LOSS,
    Better,
    Directions,
    Mode,
    Ranking,
    choose_ranking,
    read_ranking,
)
from kauldron_core.rundir.reading import Misfit, parse, read_bytes, read_json
from kauldron_core.rundir.recording import claim_evaluation, failure, outcome, record_evaluation, remove_leftovers
from kauldron_core.rundir.removal import check_inside, refuse_links, remove
from kauldron_core.rundir.results import (
    Record,
    list_eval_results,
    read_eval_result,
    read_eval_results,
    result_path,
    write_eval_result,
)
from kauldron_core.rundir.status import DAMAGED, STATUSES, TERMINAL, read_status, write_status
from kauldron_core.rundir.tables import read_table, write_table
from kauldron_core.rundir.unevaluated import record_removed, record_skipped

__all__ = [
    "BETTER",
    "DAMAGED",
    "DEFAULT_MAX_PENDING",
    "FORMAT",
    "INHERITED",
    "MODES",
    "POINTER_FILE",
    "RESUMED_FROM",
    "STATUSES",
    "TERMINAL",
    "TRAINING_LOSS",
    "Backlog",
    "Better",
    "Directions",
    "DamagedFile",
    "Event",
    "EventFollower",
    "EventWriter",
    "Holder",
    "Lease",
    "Misfit",
    "PackDir",
    "Mode",
    "Pending",
    "Ranking",
    "Record",
    "RunDir",
    "RunLock",
    "RunWatch",
    "Strategy",
    "TrialDir",
    "Wanted",
    "awaited_steps",
    "begin_use",
    "check_inside",
    "check_name",
    "check_path",
    "check_probe",
    "choose_ranking",
    "claim_evaluation",
    "committed_steps",
    "create_exclusive",
    "damages",
    "due",
    "dumps",
    "failure",
    "find_one_trial",
    "find_trial",
    "find_trials",
    "formats",
    "from_pointer",
    "has_ended",
    "in_use",
    "is_committed",
    "is_locked",
    "is_watched_by_run",
    "list_eval_results",
    "list_segments",
    "local_path",
    "make_folder",
    "measured",
    "outcome",
    "pack_of",
    "parse",
    "read_eval_result",
    "read_eval_results",
    "read_events",
    "read_examples",
    "read_holder",
    "read_bytes",
    "read_json",
    "read_pending",
    "read_ranking",
    "read_status",
    "read_table",
    "record_evaluation",
    "record_removed",
    "record_skipped",
    "refuse_address",
    "refuse_links",
    "remove",
    "remove_leftovers",
    "remove_temporaries",
    "result_path",
    "run_watch_path",
    "saved_at_s",
    "strict",
    "to_pointer",
    "try_writing",
    "watch_path",
    "work_path",
    "with_home",
    "write_atomic",
    "write_eval_result",
    "write_examples",
    "write_json",
    "write_pending",
    "write_probe",
    "write_status",
    "write_table",
]
