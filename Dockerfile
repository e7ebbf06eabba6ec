# The release image: one program, no shell, no package manager, not root.
#
#   docker build -t portcullis .
#   docker run -v portcullis:/var/lib/portcullis -p 8443:8443 portcullis
#
# The working folder is /var/lib/portcullis: without arguments the gateway makes
# a development set-up there, in .portcullis/, and serves it on the container's
# loopback alone. For anything else mount a folder and name its configuration:
#
#   docker run -v /etc/portcullis:/etc/portcullis:ro -p 8443:8443 \
#     portcullis serve --config /etc/portcullis/portcullis.yaml
#
# Health: the image has nothing that a HEALTHCHECK could run. Probe from outside
# over the admin listener, which is plain HTTP (`admin.address: 0.0.0.0:9090` lets
# the kubelet reach it; a network policy keeps others away):
#
#   livenessProbe:  {httpGet: {path: /livez, port: 9090}}
#   readinessProbe: {httpGet: {path: /readyz, port: 9090}}
#
# A termination grace period above `server.drain` (25s) lets requests in flight end.

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# OpenSSL is compiled in; perl and make come with this image.
RUN cargo build --release --locked \
    && install -D target/release/portcullis /out/portcullis \
    && mkdir /out/state

# glibc and libgcc, nothing else. 65532 is this image's user `nonroot`.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/portcullis /usr/local/bin/portcullis
# A new volume takes its owner from here.
COPY --from=build --chown=65532:65532 /out/state /var/lib/portcullis
WORKDIR /var/lib/portcullis
# Freed memory goes back to the system after 10 ms, not after a second: with many
# manifests a quarter less is held. Reviews of 10 KB cost the same, those of a
# megabyte more.
ENV MIMALLOC_PURGE_DELAY=10
USER 65532:65532
EXPOSE 8443
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/portcullis"]
