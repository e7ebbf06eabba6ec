# The release image: one program, no shell, no package manager, not root.
#
#   docker build -t portcullis .
#   docker run -v portcullis:/var/lib/portcullis -p 8443:8443 portcullis
#
# The working folder is /var/lib/portcullis. Without arguments, the gateway creates a
# development set-up there, in .portcullis/, and serves it on the container's loopback
# only. Otherwise mount a folder and pass its configuration:
#
#   docker run -v /etc/portcullis:/etc/portcullis:ro -p 8443:8443 \
#     portcullis serve --config /etc/portcullis/portcullis.yaml
#
# Health: the image has no program for a HEALTHCHECK. Probe the admin listener, which is
# plain HTTP, from outside (`admin.address: 0.0.0.0:9090` lets the kubelet reach it; use a
# network policy to keep others away):
#
#   livenessProbe:  {httpGet: {path: /livez, port: 9090}}
#   readinessProbe: {httpGet: {path: /readyz, port: 9090}}
#
# Set a termination grace period longer than `server.shutdownTimeout` (25s), so that requests in
# flight can finish.

FROM docker.io/library/rust:1.95-bookworm AS build
# Recorded in the program: `--build-arg COMMIT=$(git rev-parse HEAD)`.
ARG COMMIT=""
WORKDIR /src
COPY . .
# The compiler of this image, without the parts that only developers need. OpenSSL is
# compiled from source; this image has perl and make.
RUN RUSTUP_TOOLCHAIN=1.95.0 PORTCULLIS_COMMIT="$COMMIT" deploy/release/build /out \
    && mkdir /out/state

# glibc and libgcc, nothing else. 65532 is this image's user `nonroot`.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/portcullis /usr/local/bin/portcullis
# A new volume gets its owner from this folder.
COPY --from=build --chown=65532:65532 /out/state /var/lib/portcullis
WORKDIR /var/lib/portcullis
# Return freed memory to the operating system after 10 ms instead of a second: with many
# manifests this uses a quarter less. Reviews of 10 KB cost the same, those of a megabyte
# more.
ENV MIMALLOC_PURGE_DELAY=10
USER 65532:65532
EXPOSE 8443
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/portcullis"]
