"""What holds for every test: one thread, no warning of g++, and a profile of hypothesis (HYPOTHESIS_PROFILE)."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch are imported: the workers share the cores already
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("KDTREE_HOST_FLAGS", "-Werror")  # of the kernels' sources

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("kdtree-dev", max_examples=50, deadline=None, print_blob=True, suppress_health_check=SLOW)
settings.register_profile("kdtree-ci", parent=settings.get_profile("kdtree-dev"), max_examples=100, derandomize=True)
settings.register_profile("kdtree-gpu", parent=settings.get_profile("kdtree-dev"), max_examples=300)
settings.register_profile("kdtree-nightly", parent=settings.get_profile("kdtree-dev"), max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "kdtree-ci" if os.environ.get("CI") else "kdtree-dev"))
