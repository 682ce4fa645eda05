"""Newer or not, by name alone. The lists have the forms of public lists of tags."""

from __future__ import annotations

import pytest

from sparkbuild.upstream.versions import newest, parse

VLLM = "v0.8.5 v0.8.5.post1 v0.9.0 v0.9.0.1 v0.9.1 v0.9.2rc1 v0.9.2 v0.10.0rc2 v0.10.0 v0.10.1.1 v0.11.0 v0.11.1rc3"
VLLM_IMAGES = (
    "latest nightly nightly-8a728663c1 nightly-0b51c9bd8bb4b1f0c4e5fbbdd1d4e4ba3d2c3a10 gptoss deepseekv32 v0.10.2 "
    "v0.10.2-x86_64 v0.10.2-aarch64 v0.11.0 v0.11.0-x86_64 v0.11.0-aarch64 v0.11.1rc3 latest-cu129 latest-cu130"
)
SGLANG_IMAGES = (
    "latest dev dev-cu13 spark b200-cu129 v0.4.6.post5-cu124 v0.4.9.post6-cu126 v0.4.10-cu126 v0.5.2rc2-cu126 "
    "v0.5.3-cu126 v0.5.3.post1-cu126 v0.5.3-cu129 v0.5.3.post1-cu129-amd64 v0.5.4-cu130-arm64 "
    "v0.5.4.post1-cu130-arm64 v0.5.4 "
    "nightly-dev-20251028-7ed8ba05 nightly-dev-20251101-0c8a1f3e nightly-dev-cu13-20251102-aa11bb22 "
    "v0.5.5-rocm630-mi30x v0.5.6-rocm630-mi30x v0.5.6-rocm700-mi35x"
)
SGLANG = (
    "v0.4.10.post2 v0.5.0rc2 v0.5.1.post3 v0.5.2 v0.5.3rc2 v0.5.3 v0.5.3.post3 v0.5.4 gateway-v0.2.1 gateway-v0.2.2"
)
CUDA = (
    "12.8.1-devel-ubuntu22.04 12.8.1-devel-ubuntu24.04 12.8.1-runtime-ubuntu24.04 12.9.1-cudnn-devel-ubuntu24.04 "
    "13.0.0-devel-ubuntu24.04 13.0.1-devel-ubuntu24.04 13.0.1-cudnn-devel-ubuntu24.04 13.0.1-runtime-ubuntu24.04 "
    "13.0.1-base-ubi9 13.0.2-base-ubi8 13.0.2-tensorrt-runtime-ubuntu24.04 11.8.0-cudnn8-devel-ubuntu22.04"
)
PYTORCH_IMAGES = (
    "latest 2.6.0-cuda12.4-cudnn9-devel 2.7.0-cuda12.6-cudnn9-devel 2.7.1-cuda12.6-cudnn9-devel "
    "2.8.0-cuda12.6-cudnn9-runtime 2.8.0-cuda12.8-cudnn9-devel 2.9.0-cuda12.8-cudnn9-devel 2.9.0-cuda13.0-cudnn9-devel"
)
PYTORCH = "v2.7.0 v2.7.1 v2.8.0-rc4 v2.8.0 v2.9.0-rc9 v2.9.0 ciflow/trunk/160000 viable/strict/1759900000 whc_flight_1"
NIGHTLY_WHEELS = (
    "2.10.0.dev20251008+cu130 2.10.0.dev20251020+cu130 2.10.0.dev20251021+cu126 2.9.0+cu130 2.11.0.dev20251101+cu130"
)
NGC = "24.12-py3 25.01-py3 25.08-py3 25.08-py3-igpu 25.09-py3 25.09-py3-igpu 25.10-py3 25.09.1-py3"
TRITON = "25.08-py3 25.08-vllm-python-py3 25.09-vllm-python-py3 25.09-trtllm-python-py3 25.09-py3-sdk 25.10-py3-min"
TRTLLM = "0.20.0 0.21.0 1.0.0rc4 1.0.0 1.1.0rc5 1.2.0rc0.post1 1.2.0rc1 gpt-oss-dev"
ROCM = (
    "nightly_main_20251001 nightly_main_20251014 rocm6.3.1_instinct_vllm0.8.3_20250410 rocm6.4.1_vllm_0.10.1_20250909 "
    "base"
)
LLAMACPP = "b6700 b6789 b999 master-4b2dae3 gguf-v0.17.1"
LLAMACPP_IMAGES = "server server-cuda server-cuda-b6700 server-cuda-b6789 full-b6789 light light-b6790"
NCCL = "v2.27.3-1 v2.27.5-1 v2.27.7-1 v2.28.3-1 v2.28.7-1"
UBUNTU = "22.04 24.04 24.10 25.04 25.10 jammy noble noble-20250714 noble-20250925 jammy-20251001 rolling latest"
DEBIAN = "12 13 12.11 13.0 13.1 bookworm-20250811-slim bookworm-20250929-slim trixie-20250929-slim stable-slim sid"
MIXED = "v1.8.0 v1.9.0 v1.9.1 2025.10.01 2025.10.15 1.9 20251001 release-2025.10.01"
FLASH = "v2.7.4.post1 v2.8.0.post2 v2.8.1 v2.8.2 v2.8.3 fa4-v4.0.0.beta4 fa4-v4.0.0.beta7"
TRANSFORMERS = "v4.56.2 v4.57.0 v4.57.1 v4.56.0-Embedding-Gemma-preview v5.0.0rc0"

TABLE = [
    # vLLM
    ("v0.8.5", VLLM, "v0.11.0"),
    ("v0.9.0.1", VLLM, "v0.10.1.1"),
    ("v0.9.2rc1", VLLM, "v0.11.1rc3"),
    ("v0.11.0", VLLM, ""),
    ("v0.8.5", "v0.8.5 v0.8.5.post1", "v0.8.5.post1"),
    ("v0.8.5.post1", "v0.8.5 v0.8.5.post1", ""),
    ("v0.10.2", VLLM_IMAGES, "v0.11.0"),
    ("v0.10.2-aarch64", VLLM_IMAGES, "v0.11.0-aarch64"),
    ("v0.10.2-x86_64", VLLM_IMAGES, "v0.11.0-x86_64"),
    ("nightly-8a728663c1", VLLM_IMAGES, ""),
    ("nightly", VLLM_IMAGES, ""),
    ("latest-cu129", VLLM_IMAGES, ""),
    ("gptoss", VLLM_IMAGES, ""),
    # SGLang
    ("v0.4.6.post5-cu124", SGLANG_IMAGES, ""),
    ("v0.4.9.post6-cu126", SGLANG_IMAGES, "v0.5.3.post1-cu126"),
    ("v0.5.2rc2-cu126", SGLANG_IMAGES, "v0.5.3.post1-cu126"),
    ("v0.5.4-cu130-arm64", SGLANG_IMAGES, "v0.5.4.post1-cu130-arm64"),
    ("v0.5.4.post1-cu130-arm64", SGLANG_IMAGES, ""),
    ("nightly-dev-20251028-7ed8ba05", SGLANG_IMAGES, "nightly-dev-20251101-0c8a1f3e"),
    ("nightly-dev-cu13-20251102-aa11bb22", SGLANG_IMAGES, ""),
    ("v0.5.5-rocm630-mi30x", SGLANG_IMAGES, "v0.5.6-rocm630-mi30x"),
    ("spark", SGLANG_IMAGES, ""),
    ("b200-cu129", SGLANG_IMAGES, ""),
    ("v0.4.10.post2", SGLANG, "v0.5.4"),
    ("v0.5.3rc2", SGLANG, "v0.5.4"),
    ("v0.5.3.post3", SGLANG, "v0.5.4"),
    ("gateway-v0.2.1", SGLANG, "gateway-v0.2.2"),
    # CUDA
    ("12.8.1-devel-ubuntu24.04", CUDA, "13.0.1-devel-ubuntu24.04"),
    ("12.8.1-devel-ubuntu22.04", CUDA, ""),
    ("12.8.1-runtime-ubuntu24.04", CUDA, "13.0.1-runtime-ubuntu24.04"),
    ("12.9.1-cudnn-devel-ubuntu24.04", CUDA, "13.0.1-cudnn-devel-ubuntu24.04"),
    ("11.8.0-cudnn8-devel-ubuntu22.04", CUDA, ""),
    ("13.0.1-base-ubi9", CUDA, ""),
    # PyTorch
    ("2.7.0-cuda12.6-cudnn9-devel", PYTORCH_IMAGES, "2.7.1-cuda12.6-cudnn9-devel"),
    ("2.8.0-cuda12.8-cudnn9-devel", PYTORCH_IMAGES, "2.9.0-cuda12.8-cudnn9-devel"),
    ("2.8.0-cuda12.6-cudnn9-runtime", PYTORCH_IMAGES, ""),
    ("v2.7.0", PYTORCH, "v2.9.0"),
    ("v2.8.0-rc4", PYTORCH, "v2.9.0"),
    ("2.10.0.dev20251008+cu130", NIGHTLY_WHEELS, "2.11.0.dev20251101+cu130"),
    ("2.10.0.dev20251021+cu126", NIGHTLY_WHEELS, ""),
    ("2.9.0+cu130", NIGHTLY_WHEELS, ""),
    # NGC
    ("24.12-py3", NGC, "25.10-py3"),
    ("25.08-py3-igpu", NGC, "25.09-py3-igpu"),
    ("25.10-py3", NGC, ""),
    ("25.08-vllm-python-py3", TRITON, "25.09-vllm-python-py3"),
    ("25.08-py3", TRITON, ""),
    ("1.0.0rc4", TRTLLM, "1.2.0rc1"),
    ("1.2.0rc0.post1", TRTLLM, "1.2.0rc1"),
    ("0.20.0", TRTLLM, "1.0.0"),
    # others that lanes stand on
    ("nightly_main_20251001", ROCM, "nightly_main_20251014"),
    ("rocm6.3.1_instinct_vllm0.8.3_20250410", ROCM, ""),
    ("b6700", LLAMACPP, "b6789"),
    ("master-4b2dae3", LLAMACPP, ""),
    ("server-cuda-b6700", LLAMACPP_IMAGES, "server-cuda-b6789"),
    ("light-b6790", LLAMACPP_IMAGES, ""),
    ("v2.27.5-1", NCCL, "v2.28.7-1"),
    ("22.04", UBUNTU, "25.10"),
    ("noble-20250714", UBUNTU, "noble-20250925"),
    ("bookworm-20250811-slim", DEBIAN, "bookworm-20250929-slim"),
    ("12.11", DEBIAN, "13.1"),
    ("12", DEBIAN, "13"),
    ("v2.8.0.post2", FLASH, "v2.8.3"),
    ("fa4-v4.0.0.beta4", FLASH, "fa4-v4.0.0.beta7"),
    ("v4.56.2", TRANSFORMERS, "v4.57.1"),
    ("v4.56.0-Embedding-Gemma-preview", TRANSFORMERS, ""),
    # a project that went from one way of counting to another
    ("v1.9.0", MIXED, "v1.9.1"),
    ("v1.9.1", MIXED, ""),
    ("2025.10.01", MIXED, "2025.10.15"),
    ("1.9", MIXED, ""),
    ("20251001", MIXED, "2025.10.15"),
    # forms
    ("v1.2", "v1.3 v1.10 v2.0rc1 main", "v1.10"),
    ("1.2", "v1.3", "v1.3"),
    ("v1.2", "1.1 v1.2 v1.2.0 v1.3.0", ""),
    ("v1.2", "v1.2.post1 v1.2.post2", "v1.2.post2"),
    ("v2.0rc1", "v2.0rc2 v2.0.dev9", "v2.0rc2"),
    ("v2.0rc1", "v2.0 v2.0rc2", "v2.0"),
    ("v2.0rc7", "v2.0rc7.dev12+g0b51c9bd v2.0", "v2.0"),
    ("v0.5.5-nightly-20251108-abc1234", "v0.5.5-nightly-20251109-1234abc v0.5.5", "v0.5.5"),
    ("r35", "r34 r36", "r36"),
    ("release-1.2", "release-1.3 v9", "release-1.3"),
    ("main", "v1", ""),
    ("v1", "v" + "9" * 400 + " v" + "9" * 30, ""),
]


@pytest.mark.parametrize(("current", "names", "expected"), TABLE, ids=lambda value: str(value)[:40])
def test_newest(current: str, names: str, expected: str):
    assert newest(current, names.split()) == expected


def test_the_versions_of_one_wheel_are_of_one_scheme():
    assert newest("2.0", ["2.0.1", "2.1rc1"], one_scheme=True) == "2.0.1"
    assert newest("1.9.0", ["2025.10.1"], one_scheme=True) == "2025.10.1"


@pytest.mark.parametrize("name", ["latest", "main", "nightly-8a728663", "cu130-nightly", "rocm6.4.1_x", "3b1f2a9"])
def test_no_version(name: str):
    assert parse(name) is None
