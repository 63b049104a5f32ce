// Every rank sends a number to every other one.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    int ranks, rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int *in = malloc(ranks * sizeof *in), *out = malloc(ranks * sizeof *out), wrong = 0, all;
    MPI_Request *requests = malloc(2 * ranks * sizeof *requests);
    for (int at = 0; at < ranks; at++) {
        out[at] = 1000 * rank + at;
        MPI_Irecv(&in[at], 1, MPI_INT, at, 1, MPI_COMM_WORLD, &requests[at]);
    }
    for (int at = 0; at < ranks; at++)
        MPI_Isend(&out[at], 1, MPI_INT, at, 1, MPI_COMM_WORLD, &requests[ranks + at]);
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < ranks; at++) wrong += in[at] != 1000 * at + rank;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, %d wrong\n", ranks, all);
    MPI_Finalize();
    return all != 0;
}
