/* A token goes around until a rank is killed. Those that wait for it get an error, and end. */

#include "common.h"

int main(int count, char **words) {
    begin(&count, &words);
    char line[MPI_MAX_ERROR_STRING + 64];
    snprintf(line, sizeof line, "process %d of rank %d", (int)getpid(), rank);
    say(line);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int right = (rank + 1) % size, left = (rank + size - 1) % size, error = 0;
    long token = 0;
    for (long round = 0; error == 0; round++) {
        if (rank == 0) {
            error = MPI_Send(&token, 1, MPI_LONG, right, 1, MPI_COMM_WORLD);
            if (error == 0)
                error = MPI_Recv(&token, 1, MPI_LONG, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (round == 100)
                say("running");
        } else {
            error = MPI_Recv(&token, 1, MPI_LONG, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (error == 0)
                error = MPI_Send(&token, 1, MPI_LONG, right, 1, MPI_COMM_WORLD);
        }
    }
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(error, text, &length);
    snprintf(line, sizeof line, "rank %d: error %.150s", rank, text);
    fprintf(stderr, "%s\n", line);
    _exit(3);
}
