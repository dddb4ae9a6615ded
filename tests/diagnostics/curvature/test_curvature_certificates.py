"""Identities hold where they apply, are said not to apply elsewhere, and fail loudly for a wrong product."""

from dataclasses import replace

import pytest
import torch
from small_problems import encoder, make, problem

from counterpoint.diagnostics.curvature.curvature_certificates import ProductCheck, certificates
from counterpoint.diagnostics.curvature.hessian_products import HessianOperator, chunked_products, kept_products

WEIGHT, BIAS = "f.2.weight", "f.2.bias"


def by_name(operator: HessianOperator, *layer: str) -> dict[str, ProductCheck]:
    found = certificates(operator, layer, generator=torch.Generator().manual_seed(3))
    return {certificate.name: certificate for certificate in found}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["infonce", "dcl", "mio-v1", "mio-v3", "soft-triplet"])
def test_losses_of_cosines_obey_all_three(name: str, bias: bool) -> None:
    coupled = problem(make(name), encoder(bias=bias))
    for operator in (kept_products(coupled), chunked_products(coupled, 2)):
        found = by_name(operator, WEIGHT, *([BIAS] if bias else []))
        for certificate in found.values():
            assert certificate.defect is not None
            assert certificate.defect < 1e-12
            assert certificate.holds


def test_a_loss_that_sees_lengths_has_no_scale_identity() -> None:
    lengths = make("infonce", normalize=False)
    found = by_name(kept_products(problem(lengths, encoder(bias=False))), WEIGHT)
    assert found["scale"].defect is None
    assert "not the same for another scale" in found["scale"].words
    assert found["rotation"].defect is not None
    assert found["rotation"].defect < 1e-12


def test_a_loss_of_single_features_has_no_rotation_identity() -> None:
    found = by_name(kept_products(problem(make("barlow-twins"), encoder(bias=False))), WEIGHT)
    assert found["rotation"].defect is None
    assert "not the same for another rotation" in found["rotation"].words


def test_without_a_last_layer_symmetry_is_left() -> None:
    found = by_name(kept_products(problem(make("infonce"), encoder())))
    assert found["symmetry"].holds
    assert found["scale"].defect is None
    assert found["rotation"].holds


def test_a_product_that_is_not_symmetric_is_found() -> None:
    coupled = problem(make("infonce"), encoder())
    operator = kept_products(coupled)
    torch.manual_seed(0)
    skew = 1e-3 * torch.randn(coupled.num_parameters, coupled.num_parameters, dtype=torch.float64)
    wrong = replace(operator, product=lambda v: operator.product(v) + skew @ v)
    assert not by_name(wrong)["symmetry"].holds


def test_a_hessian_that_lacks_the_curvature_of_the_encoder_is_found() -> None:
    coupled = problem(make("infonce"), encoder(bias=False))
    operator = kept_products(coupled)
    wrong = replace(operator, product=lambda v: 1.01 * operator.product(v))  # symmetric all the same
    found = by_name(wrong, WEIGHT)
    assert found["symmetry"].holds
    assert not found["scale"].holds
    assert not found["rotation"].holds
