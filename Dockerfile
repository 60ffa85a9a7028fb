# The image as it ships: two static binaries and nothing else.
# Builds for the platform of the builder; no shell, no package manager, no libc in the result.
# hack/image reads the last stage and makes the same image without Docker.
FROM docker.io/library/rust:1.98.1-bookworm@sha256:93ce27a88655056a51dbdd8f5f2d7ddc071c7b0070fb288a37b5a285fc83971e AS build
WORKDIR /src
COPY . .
RUN built=$(hack/build) && cp "$built/nri-cpu-manager" "$built/cpuctl" /

FROM scratch
COPY --from=build /nri-cpu-manager /cpuctl /
# One heap for all threads. By default glibc makes one for each, and what a thread has freed no other one uses.
ENV MALLOC_ARENA_MAX=1
LABEL org.opencontainers.image.title="nri-cpu-manager"
LABEL org.opencontainers.image.description="Topology-aware CPU pinning for Kubernetes nodes, as an NRI plugin for containerd and CRI-O"
LABEL org.opencontainers.image.version="0.1.0"
LABEL org.opencontainers.image.licenses="Apache-2.0"
# Nobody, for whoever starts it without thinking. The DaemonSet says root, and why.
USER 65534:65534
ENTRYPOINT ["/nri-cpu-manager"]
CMD ["run"]
