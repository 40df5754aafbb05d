# Runs once before all files: the application every test copies.

setup_suite() {
    export COHORT_E2E_LARAVEL=${COHORT_E2E_LARAVEL:-8.83}
    export COHORT_E2E_APPS=$BATS_SUITE_TMPDIR/apps
    "$BATS_TEST_DIRNAME/../setup.sh" "$COHORT_E2E_APPS" "$COHORT_E2E_LARAVEL" >&2
}
