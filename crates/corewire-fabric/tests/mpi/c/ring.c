/* Every rank says hello; a token goes around, each rank adds its number; all send to both neighbours at once. */

#include "common.h"

enum { ROUNDS = 200, BYTES = 3000 };

int main(int count, char **words) {
    begin(&count, &words);
    char line[64];
    snprintf(line, sizeof line, "hello %d of %d", rank, size);
    say(line);

    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long token = 0;
    for (int round = 0; round < ROUNDS && size > 1; round++) {
        if (rank == 0) {
            MPI_Send(&token, 1, MPI_LONG, right, round, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_LONG, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            long expected = (round + 1L) * (size * (size - 1L) / 2);
            CHECK(token == expected, "%ld and not %ld", token, expected);
        } else {
            MPI_Recv(&token, 1, MPI_LONG, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token += rank;
            MPI_Send(&token, 1, MPI_LONG, right, round, MPI_COMM_WORLD);
        }
    }
    static unsigned char out[2][BYTES], in[2][BYTES];
    for (int round = 0; round < ROUNDS; round++) {
        memset(out[0], rank + round, BYTES);
        memset(out[1], ~(rank + round), BYTES);
        memset(in, 0, sizeof in);
        MPI_Request all[4];
        MPI_Irecv(in[0], BYTES, MPI_BYTE, left, 1, MPI_COMM_WORLD, &all[0]);
        MPI_Irecv(in[1], BYTES, MPI_BYTE, right, 2, MPI_COMM_WORLD, &all[1]);
        MPI_Isend(out[0], BYTES, MPI_BYTE, right, 1, MPI_COMM_WORLD, &all[2]);
        MPI_Isend(out[1], BYTES, MPI_BYTE, left, 2, MPI_COMM_WORLD, &all[3]);
        MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
        for (int i = 0; i < BYTES; i++) {
            CHECK(in[0][i] == (unsigned char)(left + round), "byte %d of round %d", i, round);
            CHECK(in[1][i] == (unsigned char)~(right + round), "byte %d of round %d", i, round);
        }
    }
    end();
}
