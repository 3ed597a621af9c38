"""Who is transcribed next: final ones first, and among streams in turn. Bounded; no clock, no waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Job = TypeVar("Job")


class FairQueue(Generic[Job]):
    """
    :param size: jobs of all streams; ``of_stream``: final jobs of one stream

    Of a stream at most one job that is not final waits: a newer one takes its place.
    """

    def __init__(self, size: int, of_stream: int) -> None:
        self._size = size
        self._of_stream = of_stream
        self._finals: OrderedDict[str, deque[Job]] = OrderedDict()
        self._partials: OrderedDict[str, Job] = OrderedDict()
        self.dropped = 0
        """Jobs that others took the place of."""

    def __len__(self) -> int:
        return sum(map(len, self._finals.values())) + len(self._partials)

    @property
    def finals(self) -> int:
        return sum(map(len, self._finals.values()))

    def add(self, stream: str, job: Job, *, final: bool) -> tuple[bool, list[Job]]:
        """Whether it was taken, and the jobs that had to go for it."""
        gone: list[Job] = []
        if (older := self._partials.pop(stream, None)) is not None:
            gone.append(older)
        taken = self._add_final(stream, job, gone) if final else self._add_partial(stream, job)
        self.dropped += len(gone)
        return taken, gone

    def take(self) -> Job | None:
        """The next job; its stream goes to the end of the row."""
        if self._finals:
            stream, jobs = self._finals.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._finals[stream] = jobs
            return job
        return self._partials.popitem(last=False)[1] if self._partials else None

    def remove(self, job: Job) -> None:
        """Take back a job that nobody waits for any more; one that is not here is none."""
        for stream, jobs in tuple(self._finals.items()):
            if job in jobs:
                jobs.remove(job)
                if not jobs:
                    del self._finals[stream]
                return
        for stream, partial in tuple(self._partials.items()):
            if partial is job:
                del self._partials[stream]

    def clear(self) -> list[Job]:
        """Everything that waits, taken out."""
        jobs: list[Job] = []
        while (job := self.take()) is not None:
            jobs.append(job)
        return jobs

    def _add_final(self, stream: str, job: Job, gone: list[Job]) -> bool:
        jobs = self._finals.get(stream)
        if jobs is not None and len(jobs) >= self._of_stream:
            return False
        if len(self) >= self._size:
            if not self._partials:
                return False
            gone.append(self._partials.popitem()[1])
        self._finals.setdefault(stream, deque()).append(job)
        return True

    def _add_partial(self, stream: str, job: Job) -> bool:
        if self._finals or len(self) >= self._size:
            return False
        self._partials[stream] = job
        return True
