# The recipes that developers and CI use. `just` lists them; `just ci` runs everything.

set shell := ["bash", "-euo", "pipefail", "-c"]

# List the recipes
default:
    @just --list

# Format the code
fmt:
    cargo fmt --all
    cargo fmt --manifest-path tests/console/Cargo.toml

# Refuse code that `just fmt` would change
fmt-check:
    cargo fmt --all --check
    cargo fmt --manifest-path tests/console/Cargo.toml --check

# Refuse a Cargo.lock that a manifest has outgrown, also of the workspaces that other recipes build
locks:
    for manifest in Cargo.toml fuzz/Cargo.toml tests/console/Cargo.toml tests/tracer/Cargo.toml benches/actix-http2/Cargo.toml; do \
        cargo metadata --locked --format-version 1 --manifest-path $manifest >/dev/null; done

# Clippy over everything, warnings as errors
lint: locks
    cargo clippy --locked --workspace --all-targets -- -D warnings
    cargo clippy --locked --manifest-path tests/console/Cargo.toml --target-dir target --all-targets -- -D warnings

# Run every test that needs no other program
test *ARGS:
    cargo test --locked {{ ARGS }}

# Run Kubernetes' test vectors; more folders with CONFORMANCE_VECTORS=a:b
conformance:
    cargo test --locked --test conformance -- --nocapture

# Build kube-apiserver, etcd and kubectl of the newest Kubernetes from Go modules into target/apiserver/, or of VERSION
apiserver-build *VERSION:
    tests/apiserver/build {{ VERSION }}

# Replace the CA at the pace of a real API server (takes a quarter of an hour)
renewal: apiserver-build
    PORTCULLIS_REQUIRE_APISERVER=1 cargo test --locked --test apiserver renewal -- --ignored --nocapture

# Test the gateway with a real kube-apiserver
apiserver: apiserver-build oracle-build
    PORTCULLIS_REQUIRE_APISERVER=1 cargo test --locked --test apiserver

# The same with a kube-apiserver of each version that is tested (twice as long, and seven minutes to build the older)
apiserver-both: apiserver-build (apiserver-build "1.36") oracle-build
    PORTCULLIS_REQUIRE_APISERVER=1 PORTCULLIS_REQUIRE_OLDER_APISERVER=1 cargo test --locked --test apiserver
    PORTCULLIS_REQUIRE_APISERVER=1 KUBEBUILDER_ASSETS="$PWD/target/apiserver-1.36" cargo test --locked --test apiserver

# Test the console in headless Chromium, with a real API server (Debian: chromium, chromium-driver, fonts-dejavu-core)
console *ARGS: apiserver-build
    tests/console/fetch-axe
    cargo build --locked
    PORTCULLIS_PROGRAM="${PORTCULLIS_PROGRAM:-$PWD/target/debug/portcullis}" PORTCULLIS_REQUIRE_CHROMIUM=1 PORTCULLIS_REQUIRE_APISERVER=1 \
        cargo test --locked --manifest-path tests/console/Cargo.toml --target-dir target -- {{ ARGS }}

# Take the pictures of docs/console.md anew
screenshots:
    PORTCULLIS_WRITE_SCREENSHOTS=1 just console each_view_has_its_picture

# Build the program that runs Kubernetes' own code, of each version, from Go modules into target/oracle/
oracle-build:
    tests/oracle/build

# Compare generated input with Kubernetes' own code
oracle *ARGS: oracle-build
    PORTCULLIS_REQUIRE_ORACLE=1 cargo test --locked --test oracle {{ ARGS }}

# Compare 20,000 pairs of Kyverno's rules and requests, as converted, with Kyverno's own engine; its first build takes about 15 minutes
oracle-kyverno *ARGS:
    tests/oracle/kyverno/build
    cargo test --locked -p portcullis-convert --test kyverno {{ ARGS }} -- --nocapture

# Build the fuzz targets, with libFuzzer and coverage, with the stable compiler
fuzz-build:
    fuzz/run build

# Run each fuzz target, or TARGETS, for SECONDS; findings are in target/fuzz/findings/
fuzz SECONDS *TARGETS:
    fuzz/run {{ SECONDS }} {{ TARGETS }}

# Run each fuzz target with the same inputs every time (half a minute each)
fuzz-smoke *TARGETS:
    fuzz/run smoke {{ TARGETS }}

# Attack the built program over loopback (takes ten minutes)
attacks *NAMES:
    cargo build --locked --release
    tests/attacks/run target/release/portcullis {{ NAMES }}

# Load a gateway for so many seconds while everything changes, then let faults happen to it (Python)
soak SECONDS *FAULTS:
    cargo build --locked --release
    tests/endurance/run target/release/portcullis {{ SECONDS }} {{ FAULTS }}

# Build the API documentation, with broken links as errors
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --lib --package portcullis-cel --package portcullis-convert --package portcullis-policy --package portcullis

# Build the documentation as a book in target/book, and check its links (mdBook)
book *FOLDER:
    docs/build-book {{ FOLDER }}

# Write the pages of docs/reference from what the program reads and says
reference:
    PORTCULLIS_WRITE_REFERENCE=1 cargo test --locked --test samples reference
    cargo test --locked --test samples reference

# Check the workflows of .github (actionlint, from its Go module)
workflows:
    go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Check licences, sources and banned crates
deny:
    cargo deny --locked check bans licenses sources

# Build the release program, stripped, and its debug information: FOLDER (dist), ARCHITECTURE (amd64 or arm64; this machine's)
release *ARGUMENTS:
    deploy/release/build {{ ARGUMENTS }}

# Run the release program, emulated if it is for another architecture (qemu-user-static): FOLDER, ARCHITECTURE
release-test *ARGUMENTS:
    deploy/release/test {{ ARGUMENTS }}

# Pack the release program of dist/ for hosts: VERSION ARCHITECTURE
archive VERSION ARCHITECTURE *FOLDER:
    deploy/release/archive {{ VERSION }} {{ ARCHITECTURE }} {{ FOLDER }}

# Write krew's manifest of `kubectl portcullis` for the archives of dist/: VERSION URL
krew VERSION URL *FOLDER:
    deploy/release/krew {{ VERSION }} {{ URL }} {{ FOLDER }}

# List what the program of each architecture is built from, OpenSSL too, as CycloneDX in FOLDER (cargo-cyclonedx)
sbom FOLDER: (sbom-of FOLDER "amd64" "x86_64") (sbom-of FOLDER "arm64" "aarch64")

[private]
sbom-of FOLDER ARCHITECTURE MACHINE:
    SOURCE_DATE_EPOCH=0 cargo cyclonedx --format json --spec-version 1.5 --target {{ MACHINE }}-unknown-linux-gnu --override-filename portcullis-{{ ARCHITECTURE }}.cdx
    grep -q '"name": "openssl-src"' portcullis-{{ ARCHITECTURE }}.cdx.json
    mkdir -p {{ FOLDER }} && mv portcullis-{{ ARCHITECTURE }}.cdx.json {{ FOLDER }}/
    # It also writes one for each other package of the workspace.
    rm benches/*/portcullis-{{ ARCHITECTURE }}.cdx.json crates/*/portcullis-{{ ARCHITECTURE }}.cdx.json

# Build the image twice and compare the programs (takes two release builds)
reproduce:
    deploy/release/reproduce

# Make local stand-ins for the Dockerfile's base images (root; debootstrap, podman)
image-base:
    deploy/image/base-images

# Build the image (buildah)
image *TAG:
    deploy/image/build {{ TAG }}

# Run the image with a read-only root, not as root, without capabilities (podman, runc)
image-test *IMAGE:
    deploy/image/test {{ IMAGE }}

# Run the rendered static pod with podman in the kubelet's place, after `just image` (root)
static-pod-test *IMAGE:
    deploy/kustomize/test-static-pod {{ IMAGE }}

# Run the demo of deploy/demo with podman, after `just image` (root; prometheus, python3-yaml)
demo-test: apiserver-build
    deploy/demo/test

# Test the chart with helm and a real API server
helm: apiserver-build
    deploy/helm/build
    PORTCULLIS_REQUIRE_APISERVER=1 PORTCULLIS_REQUIRE_HELM=1 cargo test --locked --test apiserver installs

# Install the program of `just release` on a host of its own, as its page says (root): FOLDER
host-test *FOLDER:
    deploy/systemd/test-host {{ FOLDER }}

# Check that docker-compose accepts the compose files
compose:
    docker-compose config --quiet
    docker-compose --file deploy/demo/docker-compose.yml config --quiet

# Check the systemd unit: below 2 is what systemd-analyze calls OK
systemd:
    unit=$(mktemp -d)/portcullis.service && sed 's|^ExecStart=/usr/local/bin/portcullis |ExecStart=/bin/true |' deploy/systemd/portcullis.service >"$unit" && systemd-analyze verify "$unit"
    systemd-analyze security --offline=true --threshold=20 --no-pager deploy/systemd/portcullis.service | tail -n 1

# Run the queries of docs/columns.md (Python's package duckdb)
columns:
    PORTCULLIS_REQUIRE_DUCKDB=1 cargo test --locked --test cli duckdb

# Test the alert rules and the dashboard's queries (promtool: Debian's package prometheus)
alerts:
    promtool check rules deploy/prometheus/alerts.yaml
    promtool test rules deploy/prometheus/alerts_test.yaml
    PORTCULLIS_REQUIRE_PROMTOOL=1 cargo test --locked --test samples dashboard

# Compare the dashboard with the types that Grafana publishes (npm)
dashboard-types:
    deploy/grafana/types

# Run the benchmarks; see benches/README.md
bench *ARGS:
    cargo bench --locked {{ ARGS }}

# Measure how decisions, loads, changes and memory grow with a set (ROWS: bindings, policies, namespaces, clusters, watched, watched-bindings, a number)
growth *ROWS:
    cargo bench --locked --bench growth -- {{ ROWS }}

# Measure what the gateway adds to a GET through a real API server that caches no answer (Python)
added-latency *ARGS: apiserver-build
    cargo build --locked --release
    benches/apiserver/run target/release/portcullis {{ ARGS }}

# Measure `pack`, `suggest` and `replay` over generated Parquet files: DECISIONS, REVIEWS, FOLDER (Python)
columns-figures *ARGS:
    cargo build --locked --release
    benches/columns/run target/release/portcullis {{ ARGS }}

# Count instructions and allocations and compare with benches/instructions.txt, or `--record` them there
instructions *ARGS:
    cargo run --quiet --locked --profile instructions --package portcullis-instructions -- {{ ARGS }}

# Compare the console's vendored scripts with the npm registry, or replace them: `write` (Python)
console-assets *ARGS:
    src/console/assets/update {{ ARGS }}

# Run everything that CI runs
ci: fmt-check lint test doc book conformance oracle apiserver console compose alerts columns deny instructions fuzz-smoke
