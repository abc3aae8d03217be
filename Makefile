# tandem: build, run, test. `make help` lists the targets.

# llama.cpp is compiled by cgo. These flags are part of Go's cache key: with the
# same flags it is compiled once (two to three minutes on two cores), with others
# again. Without -O3 -march=native the CPU code is several times slower.
# ARCH=x86-64-v3 makes a binary for other machines. The module leaves out ggml's
# AMX sources, so on processors that have AMX its users must not see that.
ARCH ?= native
export CGO_CFLAGS := -O3 -march=$(ARCH) -U__AMX_INT8__ -Wno-stringop-overflow
export CGO_CXXFLAGS := $(CGO_CFLAGS)
export GOFLAGS := -buildvcs=false

# RDMA is compiled in where the headers of libfabric are (libfabric-dev); the library
# itself is opened at run time, if at all.
TAGS := $(if $(wildcard /usr/include/rdma/fabric.h),fabric)

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X tandem/node.Version=$(VERSION)
PREFIX ?= /usr/local

.PHONY: help run build model install test test-go test-web test-e2e test-cases lint bench bench-kv netlab fuzz soak backends release image webui clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

run: build model ## build, get the default model, start, print the address
	bin/node

build: ## build bin/node
	@mkdir -p bin
	go build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/node .

model: build ## get SmolLM2-135M-Instruct unless a model is here already
	@tools/default-model.sh bin/node

install: build ## install as $(PREFIX)/bin/tandem
	install -D -m 755 bin/node $(DESTDIR)$(PREFIX)/bin/tandem

test: lint test-go test-web test-e2e ## everything that CI runs

test-go: ## unit, transcript, fuzz-seed and in-process tests, with the race detector
	go test -race -tags '$(TAGS)' -timeout 20m ./...

test-web: ## unit tests of the page and a check that webui/dist is built from webui/src
	tools/with-test-tools.sh npm --prefix webui run check

test-e2e: build ## SDKs, README commands, the page in Chromium and the case files against bin/node
	tools/with-test-tools.sh tools/e2e/run.sh

lint: ## gofmt, vet, staticcheck, known vulnerabilities
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	go vet -tags '$(TAGS)' ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.1 -tags '$(TAGS)' ./...

bench: build ## measure: HTTP against a bare loop, TTFT, start, memory
	tools/with-test-tools.sh bin/node bench $(BENCH)

bench-kv: build ## measure: TTFT cold, from memory and from disk; what keeping KV costs
	python3 tools/bench/kv.py --node bin/node --model "$$(tools/smollm2.sh build)" $(BENCH)

netlab: build ## measure: what moving KV is worth on wires of 1, 2.5 and 10 Gbit/s (as root)
	unshare -n -m python3 tools/netlab/netlab.py --node bin/node --model "$$(tools/smollm2.sh build)" $(BENCH)

FUZZTIME ?= 60s
fuzz: ## run every fuzz target for FUZZTIME
	tools/fuzz.sh $(FUZZTIME)

soak: build ## ten minutes of clients that cancel, stall and send rubbish
	python3 tools/e2e/soak.py --node bin/node --minutes $(or $(MINUTES),10)

backends: ## build ggml's Vulkan backend into bin/backends (BACKENDS="vulkan cuda" for both)
	tools/release/backends.sh $(or $(BACKENDS),vulkan)

release: ## archives for others in build/release, with licences and bill of materials (RELEASE="x86-64-v3 arm64")
	tools/release/release.sh $(RELEASE)

image: ## the container image tandem (TARGET=cpu, vulkan, cuda)
	docker build --target $(or $(TARGET),cpu) --build-arg VERSION=$(VERSION) -t tandem$(if $(TARGET),:$(TARGET)) .

webui: ## rebuild webui/dist from webui/src
	cd webui && npm ci --no-audit --no-fund && npm run build

clean: ## remove what was built
	rm -rf bin webui/node_modules
