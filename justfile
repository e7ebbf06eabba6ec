# What people and CI run alike. `just` lists it; `just ci` is everything.

set shell := ["bash", "-euo", "pipefail", "-c"]

# The recipes, each with what it does
default:
    @just --list

# Format the code
fmt:
    cargo fmt

# Refuse code that `just fmt` would change
fmt-check:
    cargo fmt --check

# Clippy over everything, warnings as errors
lint:
    cargo clippy --locked --all-targets -- -D warnings

# The decision builds without server, sockets, files and clock
inner:
    cargo clippy --locked --lib --no-default-features -- -D warnings

# The service builds without what watches API servers
no-clusters:
    cargo clippy --locked --lib --bins --no-default-features --features vendored-openssl -- -D warnings

# Every test that needs no other program
test *ARGS:
    cargo test --locked {{ ARGS }}

# Known answers of Kubernetes; more folders by CONFORMANCE_VECTORS=a:b
conformance:
    cargo test --locked --test conformance -- --nocapture

# kube-apiserver, etcd and kubectl from Go modules into target/apiserver/
apiserver-build:
    tests/apiserver/build

# Renews the certificate authority at a real API server's own pace: a quarter of an hour
renewal: apiserver-build
    PORTCULLIS_REQUIRE_APISERVER=1 cargo test --locked --test apiserver renewal -- --ignored --nocapture

# The gateway under a real kube-apiserver
apiserver: apiserver-build
    PORTCULLIS_REQUIRE_APISERVER=1 cargo test --locked --test apiserver

# The program that answers for Kubernetes from Go modules into target/oracle/
oracle-build:
    tests/oracle/build

# Generated input, judged here and by Kubernetes' own code
oracle *ARGS: oracle-build
    PORTCULLIS_REQUIRE_ORACLE=1 cargo test --locked --test oracle {{ ARGS }}

# The fuzz targets, with libFuzzer's coverage, by the stable compiler
fuzz-build:
    fuzz/run build

# Each fuzz target, or those named, for SECONDS; findings in target/fuzz/findings/
fuzz SECONDS *TARGETS:
    fuzz/run {{ SECONDS }} {{ TARGETS }}

# Each fuzz target for the same inputs every time: half a minute each
fuzz-smoke *TARGETS:
    fuzz/run smoke {{ TARGETS }}

# Strangers, users and neighbours against the built program over loopback: five minutes
attacks *NAMES:
    cargo build --locked --release
    tests/attacks/run target/release/portcullis {{ NAMES }}

# The API documentation, broken links as errors
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --lib

# Licences, sources and banned crates
deny:
    cargo deny --locked check bans licenses sources

# The compose file is one that docker-compose accepts
compose:
    docker-compose config --quiet

# The alert rules fire when they should, and only then (promtool: Debian's package prometheus)
alerts:
    promtool check rules deploy/prometheus/alerts.yaml
    promtool test rules deploy/prometheus/alerts_test.yaml

# The criterion benches; see benches/README.md for how to read them
bench *ARGS:
    cargo bench --locked {{ ARGS }}

# Everything that CI runs
ci: fmt-check lint inner no-clusters test doc conformance oracle apiserver compose alerts deny fuzz-smoke
