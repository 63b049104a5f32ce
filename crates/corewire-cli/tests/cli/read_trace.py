"""Reads a trace by Perfetto's own schema, and prints the way of a request of 16 bytes, and of its reply."""

import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

trace = perfetto_trace_pb2.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

processes, parents, open_slices, slices = {}, {}, {}, []
for packet in trace.packet:
    descriptor = packet.track_descriptor
    if packet.HasField("track_descriptor"):
        if descriptor.HasField("process"):
            processes[descriptor.uuid] = descriptor.process.process_name
        else:
            parents[descriptor.uuid] = descriptor.parent_uuid
        continue
    event = packet.track_event
    if event.type == event.TYPE_SLICE_BEGIN:
        values = {note.name: note.uint_value for note in event.debug_annotations}
        name = processes[parents[event.track_uuid]]
        one = [packet.timestamp, f"{name} {event.name}", list(event.flow_ids), values["bytes"]]
        slices.append(one)
        open_slices.setdefault(event.track_uuid, []).append(one)
    elif event.type == event.TYPE_SLICE_END:
        assert open_slices[event.track_uuid].pop()[0] <= packet.timestamp
assert not any(open_slices.values()), "a slice that does not end"

at = next(one for one in slices if one[1].endswith(" send") and one[3] == 16)
used = set()
while True:
    print(at[1])
    arrows = [flow for flow in at[2] if flow not in used]
    following = [one for one in slices if one is not at and set(one[2]) & set(arrows)]
    if not following:
        break
    assert len(following) == 1, following
    used.update(arrows)
    assert following[0][0] >= at[0]
    at = following[0]
