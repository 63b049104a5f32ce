/* What the programs share: the own place, checks, and a halt in which the test looks at corewire's counters. */

#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

#define CHECK(is_so, ...)                                                  \
    do {                                                                   \
        if (!(is_so)) {                                                    \
            fprintf(stderr, "rank %d, line %d: %s: ", rank, __LINE__, #is_so); \
            fprintf(stderr, __VA_ARGS__);                                  \
            fputc('\n', stderr);                                           \
            MPI_Abort(MPI_COMM_WORLD, 9);                                  \
        }                                                                  \
    } while (0)

static void begin(int *count, char ***words) {
    MPI_Init(count, words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* A line that is not mixed with other ranks'. */
static void say(const char *line) {
    char text[256];
    int length = snprintf(text, sizeof text, "%s\n", line);
    if (write(STDOUT_FILENO, text, length) != length)
        _exit(8);
}

/* Rank 0 asks the test to look, and goes on when it answers. Meanwhile all ranks make progress, in which corewire tells its
 * counts to those that look. */
static void end(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        int is_there;
        char answer;
        say("look");
        do
            MPI_Iprobe(MPI_ANY_SOURCE, 4711, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
        while (poll(&input, 1, 1) == 0);
        CHECK(read(STDIN_FILENO, &answer, 1) == 1, "the test does not answer");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
