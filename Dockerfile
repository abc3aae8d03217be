# tandem in a container. Three images from one file:
#
#   docker build -t tandem .                          CPU
#   docker build -t tandem:vulkan --target vulkan .   CPU and Vulkan (AMD, Intel, NVIDIA)
#   docker build -t tandem:cuda --target cuda .       CPU and CUDA (NVIDIA)
#
# x86-64-v3 is any PC since about 2015 (AVX2); for older ones --build-arg ARCH=x86-64-v2.
# On arm64: --build-arg ARCH=armv8.2-a+dotprod+fp16.

ARG GO=1.26
ARG DEBIAN=bookworm
ARG CUDA=12.8.1

# The program. llama.cpp comes with the Go module and is compiled by cgo.
FROM golang:${GO}-${DEBIAN} AS build
ARG ARCH=x86-64-v3
ARG VERSION=dev
ENV GOTOOLCHAIN=local GOFLAGS=-buildvcs=false \
    CGO_CFLAGS="-O3 -march=${ARCH} -U__AMX_INT8__ -Wno-stringop-overflow" \
    CGO_CXXFLAGS="-O3 -march=${ARCH} -U__AMX_INT8__ -Wno-stringop-overflow"
# With its headers RDMA is compiled in. The images do not hold libfabric itself: add
# libfabric1 to one, and give the container its devices, to use it.
RUN apt-get update && apt-get install -y --no-install-recommends libfabric-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -tags fabric -ldflags "-s -w -X tandem/node.Version=${VERSION}" -o /out/tandem . \
 && tools/release/backends.sh --copy-source /out/ggml \
 && mkdir -p /out/data

# The ggml backends, from the source that the program's module carries, so that both
# are of the same version.
# A newer Debian: its compiler of shaders knows the matrix units of GPUs.
FROM debian:trixie-slim AS build-vulkan
RUN apt-get update && apt-get install -y --no-install-recommends cmake ninja-build g++ glslc libvulkan-dev && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ggml /ggml
COPY tools/release/backends.sh /
RUN /backends.sh --source /ggml --out /backends vulkan

FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build-cuda
ARG CUDA_ARCHITECTURES=60;70;75;80;86;89;90;120
RUN apt-get update && apt-get install -y --no-install-recommends cmake ninja-build && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ggml /ggml
COPY tools/release/backends.sh /
RUN CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES}" /backends.sh --source /ggml --out /backends cuda

FROM debian:trixie-slim AS vulkan
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libstdc++6 libvulkan1 mesa-vulkan-drivers && rm -rf /var/lib/apt/lists/*
COPY --from=build-vulkan /backends /usr/local/bin/backends
COPY --from=build /out/tandem /usr/local/bin/tandem
COPY --from=build --chown=65532:65532 /out/data /data
ENV NODE_DATA_DIR=/data NODE_LISTEN=0.0.0.0:9494 HOME=/data
USER 65532:65532
VOLUME /data
EXPOSE 9494/tcp 9495/tcp 9495/udp 9496/tcp 9496/udp
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["tandem", "status", "--json"]
ENTRYPOINT ["tandem"]

# The driver (libcuda) comes from the host: docker run --gpus all.
FROM nvidia/cuda:${CUDA}-base-ubuntu24.04 AS cuda
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libstdc++6 libcublas-12-8 && rm -rf /var/lib/apt/lists/*
COPY --from=build-cuda /backends /usr/local/bin/backends
COPY --from=build /out/tandem /usr/local/bin/tandem
COPY --from=build --chown=65532:65532 /out/data /data
ENV NODE_DATA_DIR=/data NODE_LISTEN=0.0.0.0:9494 HOME=/data NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
VOLUME /data
EXPOSE 9494/tcp 9495/tcp 9495/udp 9496/tcp 9496/udp
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["tandem", "status", "--json"]
ENTRYPOINT ["tandem"]

# CPU only: the last stage is the one that is built without --target.
FROM debian:${DEBIAN}-slim AS cpu
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libstdc++6 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/tandem /usr/local/bin/tandem
COPY --from=build --chown=65532:65532 /out/data /data
ENV NODE_DATA_DIR=/data NODE_LISTEN=0.0.0.0:9494 HOME=/data
USER 65532:65532
VOLUME /data
EXPOSE 9494/tcp 9495/tcp 9495/udp 9496/tcp 9496/udp
# With its own key, which is in the data folder, or in NODE_API_KEY.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["tandem", "status", "--json"]
ENTRYPOINT ["tandem"]
