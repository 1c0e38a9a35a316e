"""Attention by kernels of our own, on a CPU by Triton's interpreter and on a GPU as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import Attention  # type: ignore[attr-defined]
from torch import Tensor, nn

from icone.cuda.attention import ShortAttention, attention, use_short_attention
from icone.encoders import build_encoder

interpreted = pytest.mark.skipif(
    torch.cuda.is_available() or find_spec("triton") is None,
    reason="Triton's interpreter is for machines without a GPU, and Triton comes with torch for CUDA",
)


def usual(qkv: Tensor, heads: int) -> Tensor:
    """The library's attention between the same layouts."""
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def result_and_gradient(
    attend: Callable[[Tensor, int], Tensor], qkv: Tensor, heads: int, incoming: Tensor
) -> tuple[Tensor, Tensor]:
    qkv = qkv.detach().requires_grad_()
    result = attend(qkv, heads)
    return result.detach(), torch.autograd.grad(result, qkv, incoming.to(qkv.dtype))[0]


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that is asked for is full of NaN until it is written."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("n", [1, 5, 70])
@pytest.mark.parametrize("depth", [16, 64])
@pytest.mark.parametrize(("size", "tolerance"), [(1, 1e-6), (20, 1e-3)], ids=["usual logits", "large logits"])
@interpreted
def test_result_and_gradient_against_float64(n: int, depth: int, size: int, tolerance: float) -> None:
    """Of logits around a thousand, float32 keeps four digits behind the point, and weights follow them."""
    torch.manual_seed(n)
    qkv, incoming = size * torch.randn(2, n, 3 * 2 * depth), torch.randn(2, n, 2 * depth)
    found = result_and_gradient(attention, qkv, 2, incoming)
    expected = result_and_gradient(usual, qkv.double(), 2, incoming)
    for ours, exact in zip(found, expected, strict=True):
        assert ours.shape == exact.shape
        torch.testing.assert_close(ours.double(), exact, rtol=tolerance, atol=tolerance * float(exact.abs().max()))


@interpreted
def test_keys_beyond_the_last_have_no_weight_where_all_logits_are_far_below_theirs() -> None:
    queries, keys, values = torch.full((1, 5, 16), 30.0), torch.full((1, 5, 16), -30.0), torch.randn(1, 5, 16)
    qkv, incoming = torch.cat([queries, keys, values], dim=2), torch.randn(1, 5, 16)
    found, expected = (result_and_gradient(attend, qkv, 1, incoming) for attend in (attention, usual))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@interpreted
def test_half_precision_and_layouts_of_any_kind_are_taken() -> None:
    qkv, incoming = torch.randn(40, 2, 96).half().transpose(0, 1), torch.randn(2, 32, 40).half().transpose(1, 2)
    found = result_and_gradient(attention, qkv, 2, incoming)
    expected = result_and_gradient(usual, qkv.double(), 2, incoming)
    for ours, exact in zip(found, expected, strict=True):
        assert ours.dtype == torch.float16
        assert (ours - exact).norm() < 2e-3 * exact.norm()


@pytest.mark.filterwarnings("default")  # the check warns about itself
@interpreted
def test_compilers_are_told_the_truth_about_the_operators() -> None:
    qkv = torch.randn(2, 5, 96, requires_grad=True)
    torch.library.opcheck(torch.ops.icone.attention.default, (qkv, 2))
    result, logs = torch.ops.icone.attention(qkv.detach(), 2)
    backward = torch.ops.icone.attention_backward.default
    torch.library.opcheck(backward, (torch.randn_like(result), qkv.detach(), result, logs, 2))


def transformer() -> nn.Module:
    torch.manual_seed(0)
    return build_encoder("test_vit", in_channels=3, spatial_dims=2, size=32)


def test_replaced_layers_share_their_parameters_and_give_the_same_on_a_cpu() -> None:
    network, x = transformer().eval(), torch.randn(2, 3, 32, 32)
    expected, before, names = network(x), list(network.parameters()), list(network.state_dict())
    use_short_attention(network)
    assert {type(m) for m in network.modules() if isinstance(m, Attention)} == {ShortAttention}
    assert not any(m.training for m in network.modules())
    assert all(ours is theirs for ours, theirs in zip(network.parameters(), before, strict=True))
    assert list(network.state_dict()) == names
    assert torch.equal(network(x), expected)


@interpreted
def test_a_network_with_our_kernels_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, x = transformer(), torch.randn(2, 3, 32, 32)
    network = deepcopy(plain)
    use_short_attention(network)
    monkeypatch.setattr(ShortAttention, "_is_short", lambda self, x: True)
    expected, found = plain(x), network(x)
    assert not torch.equal(found, expected)  # the sums are in another order
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    expected.square().sum().backward()
    found.square().sum().backward()
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [{"qk_norm": True}, {"attn_drop": 0.1}], ids=["normalised", "dropped"])
def test_what_the_kernels_do_not_know_is_left_to_timm(settings: dict[str, Any]) -> None:
    layer = ShortAttention(32, num_heads=2, norm_layer=nn.LayerNorm, **settings)
    assert not layer._is_plain()
    assert layer.eval()._is_plain() == ("attn_drop" in settings)


def test_masks_reach_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, mask = Attention(32, num_heads=2), torch.randn(2, 5, 32), torch.zeros(5, 5)
    mask[:, 0] = float("-inf")
    expected = layer(x, attn_mask=mask)
    network = nn.Sequential(layer)
    use_short_attention(network)
    ours = network[0]
    assert type(ours) is ShortAttention
    monkeypatch.setattr(ShortAttention, "_is_short", lambda self, x: True)
    assert torch.equal(ours(x, attn_mask=mask), expected)
    assert torch.equal(ours(x, mask), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("batch", "n", "heads", "depth"), [(2, 197, 6, 64), (16, 50, 3, 64)])
def test_gpu_errors_are_those_of_the_library(batch: int, n: int, heads: int, depth: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    qkv = torch.randn(batch, n, 3 * heads * depth, device="cuda", dtype=dtype)
    incoming = torch.randn(batch, n, heads * depth, device="cuda", dtype=dtype)
    exact = result_and_gradient(usual, qkv.double(), heads, incoming)
    found, library = (result_and_gradient(attend, qkv, heads, incoming) for attend in (attention, usual))
    again = result_and_gradient(attention, qkv, heads, incoming)
    for ours, repeated, theirs, truth in zip(found, again, library, exact, strict=True):
        assert ours.dtype == dtype
        assert (ours - truth).norm() <= 1.5 * (theirs - truth).norm()
        assert torch.equal(ours, repeated)


@pytest.mark.gpu
@pytest.mark.parametrize("depth", [16, 32, 128])
def test_gpu_takes_heads_of_other_depths(depth: int) -> None:
    qkv, incoming = torch.randn(2, 70, 6 * depth).cuda(), torch.randn(2, 70, 2 * depth).cuda()
    exact = result_and_gradient(usual, qkv.double(), 2, incoming)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)):
        for ours, truth in zip(result_and_gradient(attention, qkv.to(dtype), 2, incoming), exact, strict=True):
            assert (ours - truth).norm() <= tolerance * truth.norm()


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # compilers warn about themselves
def test_gpu_compiled_and_captured_results_are_those_of_eager_ones() -> None:
    qkv = torch.randn(2, 197, 3 * 384, device="cuda", dtype=torch.bfloat16)
    incoming = torch.randn(2, 197, 384, device="cuda", dtype=torch.bfloat16)

    def around(x: Tensor, heads: int) -> Tensor:
        return attention(x * 2, heads) * 4

    compiled = torch.compile(around, fullgraph=True)
    expected = result_and_gradient(around, qkv, 6, incoming)
    torch.testing.assert_close(result_and_gradient(compiled, qkv, 6, incoming), expected)
    for function in (around, compiled):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result_and_gradient(function, qkv, 6, incoming)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = result_and_gradient(function, qkv, 6, incoming)
        graph.replay()
        torch.testing.assert_close(captured, expected)


@pytest.mark.gpu
def test_gpu_layer_uses_the_kernels_only_where_they_are_faster() -> None:
    layer, plain = ShortAttention(384, num_heads=6).cuda(), Attention(384, num_heads=6).cuda()
    plain.load_state_dict(layer.state_dict())
    with torch.autocast("cuda", torch.bfloat16):
        for shape, ours in (((2, 197), True), ((17, 197), True), ((2, 257), False)):
            x = torch.randn(*shape, 384, device="cuda")
            assert layer._is_short(x) == ours
            torch.testing.assert_close(layer(x), plain(x), rtol=0.05, atol=0.01)
