"""The statistics that reports and gates are made of: small, pure, and quick to import (WORK-10).

Counts must be whole and not negative, and numbers finite: anything else is a `ValueError`. Where a coefficient is
undefined, such as a kappa of raters who use a single category, the result is None, which cannot be averaged by mistake.
"""

from evalloom.core.lazy import lazy_names

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is at run time, without the time to import it
if TYPE_CHECKING:
    from evalloom.analysis.statistics.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
    from evalloom.analysis.statistics.corrections import benjamini_hochberg, holm
    from evalloom.analysis.statistics.distributions import z_value
    from evalloom.analysis.statistics.means import (
        clustered_standard_error,
        mean,
        mean_interval,
        percentile,
        standard_error,
    )
    from evalloom.analysis.statistics.paired import (
        cochran_q,
        mcnemar_chi2,
        mcnemar_exact,
        paired_difference,
        paired_mean_interval,
        paired_test,
        permutation_test,
        permuted_variance,
    )
    from evalloom.analysis.statistics.power import cases_to_detect, detectable_drop, required_cases
    from evalloom.analysis.statistics.rates import clopper_pearson, pass_at_k, pass_hat_k, wilson_interval
    from evalloom.analysis.statistics.resampling import paired_bootstrap, paired_permutation

__all__ = [
    "benjamini_hochberg",
    "cases_to_detect",
    "clopper_pearson",
    "clustered_standard_error",
    "cochran_q",
    "cohen_kappa",
    "detectable_drop",
    "fleiss_kappa",
    "holm",
    "krippendorff_alpha",
    "mcnemar_chi2",
    "mcnemar_exact",
    "mean",
    "mean_interval",
    "paired_bootstrap",
    "paired_difference",
    "paired_mean_interval",
    "paired_permutation",
    "paired_test",
    "pass_at_k",
    "pass_hat_k",
    "percentile",
    "permutation_test",
    "permuted_variance",
    "required_cases",
    "standard_error",
    "wilson_interval",
    "z_value",
]
# A run needs half of the modules.
__getattr__ = lazy_names(
    __name__,
    {
        "evalloom.analysis.statistics.agreement": ("cohen_kappa", "fleiss_kappa", "krippendorff_alpha"),
        "evalloom.analysis.statistics.corrections": ("benjamini_hochberg", "holm"),
        "evalloom.analysis.statistics.distributions": ("z_value",),
        "evalloom.analysis.statistics.means": (
            "clustered_standard_error",
            "mean",
            "mean_interval",
            "percentile",
            "standard_error",
        ),
        "evalloom.analysis.statistics.paired": (
            "cochran_q",
            "mcnemar_chi2",
            "mcnemar_exact",
            "paired_difference",
            "paired_mean_interval",
            "paired_test",
            "permutation_test",
            "permuted_variance",
        ),
        "evalloom.analysis.statistics.power": ("cases_to_detect", "detectable_drop", "required_cases"),
        "evalloom.analysis.statistics.rates": ("clopper_pearson", "pass_at_k", "pass_hat_k", "wilson_interval"),
        "evalloom.analysis.statistics.resampling": ("paired_bootstrap", "paired_permutation"),
    },
)
