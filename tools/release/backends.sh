#!/usr/bin/env bash
# Builds ggml's GPU backends as shared libraries, from the source in the Go module that
# the program's engine comes from: they must be of the same version.
#
#   backends.sh [--source DIR] [--out DIR] vulkan|cuda...
#   backends.sh --copy-source DIR      copies the source, for a build elsewhere
#
# Without --source the module is found with go. The libraries go to --out
# (bin/backends, where bin/node looks), libggml-base.so with them.
# Vulkan needs cmake, ninja, g++, glslc, libvulkan-dev; CUDA its toolkit and
# CUDA_ARCHITECTURES ("native" if unset).
set -euo pipefail
source_dir= out=bin/backends
backends=()
module() { go list -m -f '{{.Dir}}' github.com/ollama/ollama; }

while [ $# -gt 0 ]; do
  case $1 in
    --source) source_dir=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --copy-source)
      mkdir -p "$2"
      cp -r "$(module)/ml/backend/ggml/ggml/." "$2"
      chmod -R u+w "$2"
      exit ;;
    vulkan | cuda) backends+=("$1"); shift ;;
    *) echo "$1: allowed: --source DIR, --out DIR, --copy-source DIR, vulkan, cuda" >&2; exit 2 ;;
  esac
done
[ ${#backends[@]} -gt 0 ] || { echo "no backend is named; allowed: vulkan, cuda" >&2; exit 2; }
source_dir=${source_dir:-$(module)/ml/backend/ggml/ggml}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source_dir" "$work/ggml"
chmod -R u+w "$work/ggml"
# The module leaves out the shaders with which ggml finds out what the compiler of
# shaders can do, and without them takes it to be able to do everything.
tests=$work/ggml/src/ggml-vulkan/vulkan-shaders/feature-tests
mkdir -p "$tests"
for t in coopmat:GL_KHR_cooperative_matrix coopmat2:GL_NV_cooperative_matrix2 integer_dot:GL_EXT_integer_dot_product bfloat16:GL_EXT_bfloat16; do
  printf '#version 460\n#extension %s : require\nvoid main() {}\n' "${t#*:}" >"$tests/${t%%:*}.comp"
done

# ggml's own CMakeLists.txt is not in the module; this has what it would set.
cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.21)
project(tandem-backends C CXX)
include(GNUInstallDirs)
find_package(Threads REQUIRED)
set(CMAKE_BUILD_TYPE Release)
set(BUILD_SHARED_LIBS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "\$ORIGIN")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR}/lib)
set(GGML_BUILD ON)
set(GGML_SHARED ON)
set(GGML_BACKEND_DL ON)
set(GGML_BACKEND_SHARED ON)
set(GGML_CPU OFF)
set(GGML_SCHED_MAX_COPIES 4)
set(GGML_CUDA_PEER_MAX_BATCH_SIZE 128)
set(GGML_CUDA_GRAPHS ON)
set(GGML_CUDA_FA ON)
set(GGML_CUDA_COMPRESSION_MODE default)
set(GGML_VERSION_MAJOR 0)
set(GGML_VERSION "0.0.0")
add_compile_definitions(NDEBUG GGML_VERSION=0x0 GGML_COMMIT=0x0)
set(GGML_DIR "$work/ggml")
include_directories(\${GGML_DIR}/include \${GGML_DIR}/src)
add_subdirectory(\${GGML_DIR}/src \${CMAKE_BINARY_DIR}/ggml)
if(WITH_VULKAN)
  find_package(Vulkan REQUIRED)
  add_subdirectory(\${GGML_DIR}/src/ggml-vulkan \${CMAKE_BINARY_DIR}/ggml-vulkan)
endif()
if(WITH_CUDA)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_subdirectory(\${GGML_DIR}/src/ggml-cuda \${CMAKE_BINARY_DIR}/ggml-cuda)
endif()
CMAKE

options=() targets=(ggml-base)
for b in "${backends[@]}"; do
  options+=("-DWITH_${b^^}=ON")
  targets+=("ggml-$b")
done
if [[ " ${backends[*]} " == *" cuda "* ]]; then
  options+=("-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-native}")
fi
cmake -S "$work" -B "$work/build" -G Ninja "${options[@]}"
cmake --build "$work/build" --target "${targets[@]}" --parallel "${JOBS:-$(nproc)}"

mkdir -p "$out"
cp -L "$work"/build/lib/libggml-*.so "$out"
ls -l "$out"
