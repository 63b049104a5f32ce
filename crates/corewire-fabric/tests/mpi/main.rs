//! MPI programs over the provider, by the MPIs of this machine: a program of its own, since jobs run one after the other
//! and take processors.
//!
//! An MPI that is not here has its tests skipped, with a line that names it (`scripts/setup test` installs what it may).
//! Longer runs: `COREWIRE_MPI_RANKS=1,2,4,7,16` for the ranks of each program, `COREWIRE_MPI_KILLS=67` for the kills of
//! each MPI, and `COREWIRE_MPI_LIMIT=600` for the seconds that a job may take.

mod deaths;
mod job;
mod libfabric;
mod mpis;
mod place;
mod programs;

/// One module of tests for each MPI.
macro_rules! tests_of {
    ($($name:ident: $find:expr;)*) => {
        $(mod $name {
            tests_of!(@each $find; programs: ring, messages, collectives, one_sided, ping_pong);
            tests_of!(@each $find; deaths: a_killed_rank_ends_the_job, those_that_wait_for_a_killed_rank_get_an_error,
                a_stopped_rank_holds_up_only_those_that_wait_for_it);
        })*
    };
    (@each $find:expr; $module:ident: $($test:ident),*) => {
        $(#[test]
        fn $test() {
            if let Some(mpi) = $find {
                crate::$module::$test(&mpi);
            }
        })*
    };
}

tests_of! {
    mpich_5: crate::mpis::mpich("5.0.2");
    mpich_4: crate::mpis::mpich("4.2.3");
    open_mpi_4: crate::mpis::open_mpi();
}
