# The two commands a newcomer needs are "make run" and "make test".

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
LDFLAGS := -s -w
TOOL    := go tool -modfile=deployments/tools/go.mod

# Everything that starts processes is under integration/; the rest are unit tests.
UNIT        = $(shell go list ./... | grep -v '^omniroute/integration/\(e2e\|replicas\|chaos\|load\)')
INTEGRATION = ./integration/e2e/... ./integration/replicas/... ./integration/chaos/...

.DEFAULT_GOAL := help
.PHONY: help run build test unit integration dev-test check format lint bench generate generate-diff clean FORCE

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: bin/omniroute-dev bin/omniroute ## Run the whole system here, data under .data/ (flags: make run ARGS="--listen 127.0.0.1:9000").
	@exec bin/omniroute-dev $(ARGS)

build: bin/omniroute bin/omniroute-dev ## Build bin/omniroute and bin/omniroute-dev.

bin/omniroute: FORCE
	@go build -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o $@ ./gateway/cmd/omniroute

bin/omniroute-dev: FORCE
	@test -x $@ || echo "building Temporal from source, 5 to 10 minutes the first time (seconds afterwards)"
	@go -C deployments/dev build -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o ../../$@ .

# The integration tests run the gateway under the race detector.
bin/race/omniroute: FORCE
	@go build -race -o $@ ./gateway/cmd/omniroute

test: unit dev-test integration ## Every test: unit with -race, then the system against real Temporal and Postgres.

unit: ## Unit tests with the race detector.
	go test -race -timeout 10m $(UNIT)

dev-test: ## Tests of the embedded Temporal server's module.
	go -C deployments/dev test -timeout 10m ./...

# One package at a time: these tests measure bounds like "within 2 s" on real processes.
integration: bin/omniroute-dev bin/omniroute bin/race/omniroute ## Whole-system tests.
	OMNI_TEST_BIN=$(CURDIR)/bin/race/omniroute OMNI_TEST_PLAIN_BIN=$(CURDIR)/bin/omniroute OMNI_TEST_DEV_BIN=$(CURDIR)/bin/omniroute-dev \
	  go test -race -p 1 -timeout 20m $(INTEGRATION)

check: lint generate-diff ## Format, lint, import rules, workflow determinism, generated files, vet, unit tests.
	go vet ./...
	go -C deployments/dev vet ./...
	go test ./integration/arch
	$(MAKE) unit

lint:
	@out=$$($(TOOL) gofumpt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not formatted (make format):"; echo "$$out"; exit 1; }
	$(TOOL) golangci-lint run ./...
	$(TOOL) workflowcheck -config workflowcheck.yaml ./workflows/...

format: ## Format all Go files.
	$(TOOL) gofumpt -w $$(git ls-files '*.go')

bench: ## Measure the gateway beside a plain reverse proxy, same upstream, same run.
	go test -run '^$$' -bench . -benchmem -timeout 20m ./integration/load/...

generate: ## Record the workflow histories of this version.
	go generate ./workflows/...

generate-diff: generate
	git diff --exit-code -- workflows/testdata

clean: ## Remove what was built; data under .data/ stays.
	rm -rf bin
