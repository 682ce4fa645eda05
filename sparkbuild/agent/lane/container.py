"""Write the record of a container's launch: made before it is started, so that no container runs that none names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.lane import launch, records
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import Recorded, RecordRequest


def run(request: RecordRequest, reporter: Reporter) -> Recorded:
    """See RECORD. Errors as of launch: who has the port would be taken for the container."""
    with launch.place_for(request, reporter):
        record = launch.record_of(request)
        record.update({"runtime": "docker", "container": request["container"]})
        records.write(request["store"], record)
    return {"record": record}
