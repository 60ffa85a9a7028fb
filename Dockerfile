# The image as it ships: one static binary and nothing else.
# Builds for the platform of the builder; no shell, no package manager, no libc in the result.
FROM docker.io/library/rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cp "$(hack/build)" /nri-cpu-manager

FROM scratch
COPY --from=build /nri-cpu-manager /nri-cpu-manager
ENTRYPOINT ["/nri-cpu-manager"]
CMD ["run"]
