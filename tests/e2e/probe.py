"""Run inside a member's container, as text: python -c PROBE (plain | STATE) TOPIC...; prints the
broker's verdicts.

STATE is the folder of a member, with whose certificate it speaks. It imports no torch: a member's
container has little time for it.
"""

import queue
import sys
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tacit_services.transport.mqtt import Connection
from tacit_services.transport.tls import Tls

state = Path(sys.argv[1])
tls = None
if str(state) != "plain":
    tls = Tls(state / "ca.crt", state / "tls.crt", state / "tls.key")
# A certificate that the broker refuses ends here.
entry = Connection("host:8443", "probe", [], lambda inbound: None, tls=tls)
entry.start(3.0)
entry.stop()
# tacit speaks MQTT 3.1.1, in which a broker acknowledges what it drops; MQTT 5 tells the two apart.
client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
verdicts: queue.SimpleQueue[int] = queue.SimpleQueue()
client.on_publish = lambda _c, _u, _m, reason, _p: verdicts.put(reason.value)
if tls is not None:
    client.tls_set_context(tls.context("mqtt"))
client.connect("host", 8443)
client.loop_start()
for topic in sys.argv[2:]:
    client.publish(topic, b"x", qos=1)
    print(hex(verdicts.get(timeout=10)))  # noqa: T201
client.disconnect()
client.loop_stop()
