/* The last rank stops itself before anything was sent to it. The others talk to each other, and rank 0 sends to it. */

#include "common.h"

enum { ROUNDS = 500, TO_STOPPED = 20 };

int main(int count, char **words) {
    begin(&count, &words);
    CHECK(size > 2, "three ranks at least");
    int last = size - 1, value = 0;
    if (rank == last) {
        char line[64];
        snprintf(line, sizeof line, "process %d of rank %d", (int)getpid(), rank);
        say(line);
        raise(SIGSTOP);
        for (int i = 0; i < TO_STOPPED; i++) {
            MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(value == i, "%d and not %d", value, i);
        }
        MPI_Send(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    } else {
        for (int i = 0; rank == 0 && i < TO_STOPPED; i++)
            MPI_Send(&i, 1, MPI_INT, last, 1, MPI_COMM_WORLD);
        for (int round = 0; round < ROUNDS; round++)
            MPI_Sendrecv(&round, 1, MPI_INT, (rank + 1) % last, 3, &value, 1, MPI_INT, (rank + last - 1) % last, 3,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(value == ROUNDS - 1, "%d", value);
        if (rank == 0) {
            say("others are done");
            MPI_Recv(&value, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(value == TO_STOPPED - 1, "%d", value);
        }
    }
    end();
}
