"""Sharded checkpoints around a script's own loop: written while training goes on, resumed on any layout of ranks.

    with hulk.Checkpointer(model, optimizer, scheduler=scheduler) as checkpointer:
        for step in range(checkpointer.resume(), num_steps):
            train(step)
            checkpointer.step(step + 1)

Every rank calls it. Store, frequency and number come from spec.checkpoint, or from the call.
"""

import os
import traceback
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from hulk_runtime import background
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.sharded import ShardedCheckpoints
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.collective import planned_sums
from hulk_runtime.diloco.context import DiLoCo
from hulk_runtime.errors import (
    CheckpointError,
    ConfigurationError,
    FencedError,
    HulkError,
    PeerLostError,
    RankLostError,
)
from hulk_runtime.job import environment, peer_secret, step_record
from hulk_runtime.job.environment import Checkpointing
from hulk_runtime.sharded_checkpoints import resumption, stores
from hulk_runtime.sharded_checkpoints.copies import copies, held, together
from hulk_runtime.sharded_checkpoints.copy_writer import CopyWatcher, CopyWriter, say
from hulk_runtime.sharded_checkpoints.ranks import Ranks
from hulk_runtime.sharded_checkpoints.resumption import Candidate
from hulk_runtime.sharded_checkpoints.saving import await_saved
from hulk_runtime.sharded_checkpoints.staging import Staging
from hulk_runtime.sharded_checkpoints.training_state import Model, Optimizers, Stateful, TrainingState
from hulk_runtime.whole_numbers import whole_number


class Checkpointer:
    """A context that saves as training goes on, and once more at its end.

    `model`: a module, or the parts of it that this rank has. `others`: objects with `state_dict` and `load_state_dict`
    that are the same on all ranks, by names of the caller's choice. `every` steps, `keep` checkpoints and `url` are
    those of the job where they are left out. `diloco`: of replicas that train apart; resume before it is entered. At
    most one checkpoint is under way.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizers = None,
        *,
        every: int | None = None,
        keep: int | None = None,
        url: str | None = None,
        diloco: DiLoCo | None = None,
        **others: Stateful,
    ) -> None:
        here = environment.read(os.environ)
        settings = here.checkpointing or Checkpointing(
            url or "", environment.DEFAULT_CHECKPOINT_EVERY_STEPS, environment.DEFAULT_CHECKPOINT_KEEP
        )
        self._every = settings.every_steps if every is None else whole_number("every", every, ConfigurationError)
        num_kept = settings.num_kept if keep is None else whole_number("keep", keep, ConfigurationError)
        if self._every < 1 or num_kept < 1:
            raise ConfigurationError(f"checkpoint every {self._every} steps, keep {num_kept}: both must be > 0")
        self._stores = stores.of_rank(here, os.environ, url)
        self._owner = Owner.of_job(
            here.job,
            here.job_uid,
            peer_secret.read(here.peer_secret_path),
            trusts_store=settings.trusts_store,
            committed_step=settings.committed_step if url is None else 0,
        )
        self._attempt, self._num_kept, self._patience_s = here.attempt, num_kept, here.silence_s
        self._opened: dict[str, ShardedCheckpoints] = {}
        self._believed: set[str] = set()
        self._has_begun = False
        _require_diloco(diloco)
        self._state = TrainingState(model, optimizer, diloco, others)
        self._staging = Staging()
        self._ranks = Ranks()
        self._own_by_rank = self._ranks.all(self._stores.own)
        self._replica = None if diloco is None else diloco.replica()
        self._copy: CopyWriter | CopyWatcher | None = None
        self._is_divided = False
        self._under_way: tuple[int, Future[None]] | None = None
        self._step = self._begun = self._saved = 0

    def resume(self) -> int:
        """Bring model, optimizer and the others to the newest checkpoint; how many steps it has, 0 where there is none.

        Raises CheckpointError where there must be one and none can be read, ConfigurationError where it is of another
        model, FencedError where a newer attempt of the job has begun.
        """
        step_record.report(step=0)  # torch makes an optimizer's states by a step that is none
        listings, self._has_begun = self._begin(), True
        found = resumption.candidates(listings)
        faults = [each.fault for each in listings if each.fault]
        for candidate in found:
            read, missing = self._read(candidate)
            if not missing:
                self._step = self._begun = self._saved = candidate.age[1]
                self._say_resumed(candidate, read, faults)
                break
            faults += missing
        else:
            self._require_new(faults, is_written_over=bool(found))
        if self._is_first_of_store:
            self._sweep_unfinished()
        step_record.report(step=self._step)
        return self._step

    def step(self, completed: int) -> None:
        """So many steps are completed: save when it is time to. Raises FencedError."""
        step_record.report(step=completed)
        self._step = completed
        if completed // self._every > self._begun // self._every:
            self.save()

    def save(self) -> None:
        """Begin to write the state as it is, once what was begun before is written.

        Raises FencedError, and ConfigurationError where nothing was resumed and the store has something newer.
        """
        self.wait()
        if not self._has_begun:
            self._require_nothing_newer()
        trained = self._state.trained()
        if not self._is_divided:
            self._copy, self._is_divided = self._copy_of(trained), True
        self._begun, copy = self._step, self._copy
        if copy is None:
            self._saved = self._step
            return
        is_written = isinstance(copy, CopyWriter)
        state = self._staging.copied(trained) | self._state.others() if is_written else {}
        step, done = self._step, Future[None]()

        def write() -> None:
            try:
                copy.write(step, state)
                done.set_result(None)
            except HulkError as error:
                done.set_exception(error)

        self._under_way = step, done
        background.Thread(
            "hulk-save", write, broke=lambda name, error: done.set_exception(background.defect(name, error))
        ).start()

    def wait(self) -> None:
        """Until nothing is under way. A checkpoint that is not written is said once.

        Raises FencedError, and PeerLostError where it waits for a rank that is lost.
        """
        self._end_saving(tolerate=True)

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            is_under_way = self._under_way is not None and self._begun == self._step
            if not is_under_way and self._step > self._saved:
                self.save()
            self._end_saving(tolerate=False)
        elif self._under_way is not None:  # other ranks may be lost, and what this region writes complete
            try:
                self._end_saving(tolerate=True, timeout_s=self._patience_s)
            except HulkError as late:
                say(str(late))

    def _end_saving(self, tolerate: bool, timeout_s: float | None = None) -> None:
        if self._under_way is None:
            return
        step, done = self._under_way
        self._under_way = None
        try:
            await_saved(step, done, timeout_s, self._patience_s)
            self._saved = step
        except (CheckpointError, PeerLostError) as error:
            if not tolerate or isinstance(error, RankLostError):  # the next sum of the training says so, too
                raise
            if self._copy and self._copy.members.number == 0:
                say(f"checkpoint of step {step} not written, training goes on: {error}")

    def _begin(self) -> list[resumption.Listing]:
        """Of all ranks together: what each store has, and older attempts are fenced off.

        Raises FencedError, and ConfigurationError where a rank cannot use a store at all.
        """
        listings = [each for some in self._ranks.all(self._listings()) for each in some]
        if fenced := next((each.fenced for each in listings if each.fenced), ""):
            raise FencedError(fenced)
        if unusable := next((each.unusable for each in listings if each.unusable), ""):
            raise ConfigurationError(unusable)
        self._believed.update(manifest.name for each in listings for manifest in each.manifests)
        return listings

    def _require_nothing_newer(self) -> None:
        """Of a script that has not resumed: what it writes would count as older than what is there."""
        listings = self._begin()
        self._has_begun = not any(each.fault for each in listings)
        ages = [manifest.age for each in listings for manifest in each.manifests]
        if ages and max(ages) >= (self._attempt, self._step):
            attempt, step = max(ages)
            raise ConfigurationError(
                f"step {step} of attempt {attempt} is in {', '.join(self._stores.every)}, and step {self._step} of "
                f"attempt {self._attempt} would count as older: call resume() before training, or name another store"
            )

    def _copy_of(self, trained: dict[str, Any]) -> CopyWriter | CopyWatcher | None:
        """The copy that this rank writes a part of, or learns of as rank 0; found by all ranks together."""
        if self._replica is None:
            found = copies(self._own_by_rank, self._ranks.all(held(trained)))
        else:
            found = together(self._ranks.all(self._replica))
        number = next((place for place, ranks in enumerate(found) if self._ranks.number in ranks), None)
        ranks = [self._ranks.number] if number is None else found[number]
        members = Ranks(ranks)  # also of a rank alone: torch names groups by how many a rank has made
        if number is None:
            return CopyWatcher(found[0][0], self._ranks) if self._ranks.number == 0 else None
        urls = [self._own_by_rank[rank] for rank in ranks]
        watched = self._ranks if number == 0 and all(0 not in some for some in found) else None
        return CopyWriter(number, len(found), ranks, urls, self._at, members, watched)

    def _at(self, url: str) -> ShardedCheckpoints:
        if url not in self._opened:
            self._opened[url] = ShardedCheckpoints(
                Store(url), self._attempt, self._num_kept, self._owner, self._believed
            )
        return self._opened[url]

    def _store(self, url: str) -> Store:
        """Which a manifest names."""
        if url not in self._stores.every:
            raise CheckpointError(f"a checkpoint lies in {url}, which is no store of this job")
        return self._at(url).store

    @property
    def _is_first_of_store(self) -> bool:
        return self._own_by_rank.index(self._stores.own) == self._ranks.number

    def _sweep_unfinished(self) -> None:
        try:
            self._at(self._stores.own).sweep_unfinished()
        except CheckpointError as error:  # perhaps it answers by the time of the first checkpoint
            say(f"what earlier runs have not finished is left: {error}")

    def _listings(self) -> list[resumption.Listing]:
        """Of the stores that this rank looks through: its own as the first of it, rank 0 those that nobody is near."""
        mine = [self._stores.own] if self._is_first_of_store else []
        if self._ranks.number == 0:
            mine += [url for url in self._stores.every if url not in self._own_by_rank]
        return [self._listing(url) for url in mine]

    def _listing(self, url: str) -> resumption.Listing:
        try:
            return resumption.listing(self._at(url))
        except CheckpointError as error:  # some stores connect as they are opened
            return resumption.Listing(url, fault=str(error))
        except ConfigurationError as error:  # which all ranks raise, as no other waits for this one
            return resumption.Listing(url, unusable=str(error))

    def _read(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        """Where each rank has read its part of a state, and why others could not; of all ranks."""
        results = self._ranks.all(self._read_own(candidate))
        faults = [f"rank {rank}: {result.fault}" for rank, result in enumerate(results) if result.fault]
        for refusal in (result.refusal for result in results if result.refusal):
            what = "does not fit" if refusal is ConfigurationError else "cannot be loaded"
            raise refusal(f"checkpoint of step {candidate.age[1]} {what}: {'; '.join(faults[:4])}")
        if self._ranks.number == 0 and not faults:
            for own, other in sorted({result.replaced for result in results if result.replaced}):
                say(f"replica {own} begins as replica {other}")
        return [result.url for result in results], faults

    def _read_own(self, candidate: Candidate) -> "_Part":
        faults = []
        for url, manifest in resumption.by_distance(candidate, self._stores.every, self._replica):
            try:
                self._state.load(resumption.load(self._state.to_fill, manifest, self._at(url), self._store))
            except ConfigurationError as error:
                return _Part(url, str(error), ConfigurationError)
            except CheckpointError as error:
                faults.append(str(error))
                continue
            except Exception as error:  # noqa: BLE001 - of the script's own objects: the others wait for this rank's word
                traceback.print_exception(error)
                return _Part(url, f"{type(error).__name__}: {error}", CheckpointError)
            return _Part(url, replaced=resumption.replaced(manifest, self._replica))
        return _Part(fault="; ".join(faults))

    def _require_new(self, faults: list[str], is_written_over: bool) -> None:
        """That there is nothing to go on from. To begin in silence where there was something would lose the run.

        `faults`: why that is not known. `is_written_over`: the model, by a part of what could not be read.
        """
        committed = self._owner.committed_step
        if is_written_over or faults or (committed and not self._owner.trusts_store):
            why = "".join(f"; {fault}" for fault in dict.fromkeys(faults))
            was = f", and step {committed} was committed" if committed else ""
            raise CheckpointError(f"no checkpoint in {', '.join(self._stores.every)} is intact{was}{why}")
        if self._ranks.number == 0:
            say(f"starting at step 1, no checkpoint in {', '.join(self._stores.every)}")

    def _say_resumed(self, candidate: Candidate, read: list[str], faults: list[str]) -> None:
        if self._ranks.number:
            return
        attempt, step = candidate.age
        for fault in dict.fromkeys(faults):
            say(f"passed over: {fault}")
        if step < self._owner.committed_step:
            say(f"step {self._owner.committed_step} was committed, and is not there any more")
        near = sum(url == own for url, own in zip(read, self._own_by_rank, strict=True))
        where = ", ".join(dict.fromkeys(read))
        say(
            f"resumed after step {step} of attempt {attempt} from {where}: {near} of {len(read)} ranks from the nearest"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of one rank's reading. `refusal`: that no older state is to be tried; `replaced`: see `resumption`."""

    url: str = ""
    fault: str = ""
    refusal: type[HulkError] | None = None
    replaced: tuple[int, int] | None = None


def _require_diloco(diloco: DiLoCo | None) -> None:
    plan = planned_sums.plan()
    if diloco is None and plan is not None and plan.inner_steps is not None:
        raise ConfigurationError(
            "the job's replicas train apart, and each has a state of its own: hulk.Checkpointer(..., diloco=diloco)"
        )
