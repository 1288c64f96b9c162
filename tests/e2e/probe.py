"""Run inside a container, as text: python -c PROBE (plain | TOKEN_HOLDER_ID) TOPIC...; prints the
broker's verdicts.

It imports no torch: an edge's container has little time for it.
"""

import queue
import sys
from pathlib import Path

import httpx
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tacit_services.enrollment import certificates
from tacit_services.transport.mqtt import Connection
from tacit_services.transport.tls import Tls, context_trusting

ca, folder, name = Path("/run/tacit/ca.crt"), Path("/tmp/probe"), sys.argv[1]
tls = None
if name != "plain":
    tls = Tls(ca, folder / "tls.crt", folder / "tls.key")
    if not folder.exists():
        folder.mkdir()
        key = certificates.new_key()
        request = certificates.pem(certificates.request(key, name)).decode()
        token = Path("/run/tacit/token").read_text().strip()
        with httpx.Client(
            verify=context_trusting(ca), headers={"Authorization": f"Bearer {token}"}
        ) as web:
            answer = web.post("https://enrollment:8443/v1/enroll", json={"csr": request})
        tls.key.write_bytes(certificates.key_pem(key))
        tls.cert.write_text(answer.json()["certificate"])
# A certificate that the broker refuses ends here.
entry = Connection("mosquitto:8883", "probe", [], lambda inbound: None, tls=tls)
entry.start(3.0)
entry.stop()
# tacit speaks MQTT 3.1.1, in which a broker acknowledges what it drops; MQTT 5 tells the two apart.
client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
verdicts: queue.SimpleQueue[int] = queue.SimpleQueue()
client.on_publish = lambda _c, _u, _m, reason, _p: verdicts.put(reason.value)
if tls is not None:
    client.tls_set_context(tls.context())
client.connect("mosquitto", 8883)
client.loop_start()
for topic in sys.argv[2:]:
    client.publish(topic, b"x", qos=1)
    print(hex(verdicts.get(timeout=10)))  # noqa: T201
client.disconnect()
client.loop_stop()
