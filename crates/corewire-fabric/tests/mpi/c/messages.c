/* Which receive gets which message: wildcards, order, probes, matched probes, synchronous and ready sends, truncation,
 * cancelled receives, persistent requests, derived types. */

#include "common.h"

enum { MANY = 100, LARGE = 300000 };

static void wildcards(void) {
    if (rank == 0) {
        int next[64] = {0};
        for (int i = 0; i < MANY * (size - 1); i++) {
            int value[2];
            MPI_Status status;
            MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            int from = status.MPI_SOURCE, length;
            MPI_Get_count(&status, MPI_INT, &length);
            CHECK(length == 2 && value[0] == from, "from %d: %d", from, value[0]);
            CHECK(value[1] == next[from] && status.MPI_TAG == value[1] % 7, "out of order: %d", value[1]);
            next[from]++;
        }
    } else {
        for (int i = 0; i < MANY; i++) {
            int value[2] = {rank, i};
            MPI_Send(value, 2, MPI_INT, 0, i % 7, MPI_COMM_WORLD);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Received in another order than sent. */
static void unexpected(void) {
    if (rank == 1)
        for (int i = 0; i < MANY; i++)
            MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        for (int i = MANY - 1; i >= 0; i--) {
            int value = -1;
            MPI_Recv(&value, 1, MPI_INT, 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(value == i, "%d and not %d", value, i);
        }
}

static void probes(int bytes) {
    char *data = malloc(bytes), *other = malloc(bytes);
    if (rank == 1) {
        MPI_Request all[3];
        memset(data, 'p', bytes);
        memset(other, 'm', bytes);
        MPI_Isend(data, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &all[0]);
        MPI_Isend(other, bytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &all[1]);
        MPI_Isend(other, bytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &all[2]);
        MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
    }
    if (rank == 0) {
        MPI_Status status;
        int length, is_there;
        MPI_Probe(1, 5, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        CHECK(length == bytes && status.MPI_TAG == 5, "%d bytes", length);
        MPI_Iprobe(1, 4711, MPI_COMM_WORLD, &is_there, &status);
        CHECK(!is_there, "nobody sent that");
        MPI_Message first, second;
        MPI_Mprobe(MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &first, &status);
        MPI_Get_count(&status, MPI_BYTE, &length);
        CHECK(length == bytes && status.MPI_SOURCE == 1, "%d bytes", length);
        do
            MPI_Improbe(1, 6, MPI_COMM_WORLD, &is_there, &second, &status);
        while (!is_there);
        memset(data, 0, bytes);
        MPI_Mrecv(data, bytes, MPI_BYTE, &second, &status);
        CHECK(data[0] == 'm' && data[bytes - 1] == 'm', "other data");
        MPI_Mrecv(data, bytes, MPI_BYTE, &first, &status);
        MPI_Recv(data, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &status);
        for (int i = 0; i < bytes; i++)
            CHECK(data[i] == 'p', "byte %d", i);
    }
    free(data);
    free(other);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A synchronous send ends only when its receive has begun. */
static void synchronous(int bytes) {
    char *data = calloc(1, bytes);
    if (rank == 0) {
        MPI_Request request;
        int has_ended, go = 1;
        MPI_Issend(data, bytes, MPI_BYTE, 1, 8, MPI_COMM_WORLD, &request);
        for (int i = 0; i < 1000; i++) {
            MPI_Test(&request, &has_ended, MPI_STATUS_IGNORE);
            CHECK(!has_ended, "nobody receives");
        }
        MPI_Send(&go, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ssend(data, bytes, MPI_BYTE, 1, 8, MPI_COMM_WORLD);
    } else if (rank == 1) {
        int go;
        MPI_Recv(&go, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(data, bytes, MPI_BYTE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(data, bytes, MPI_BYTE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    free(data);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void truncated(int bytes) {
    char *data = calloc(1, bytes);
    if (rank == 0)
        MPI_Send(data, bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int class, error = MPI_Recv(data, bytes - 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Error_class(error, &class);
        CHECK(class == MPI_ERR_TRUNCATE, "class %d", class);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    }
    free(data);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void cancelled(void) {
    int value = 0, is_cancelled;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, (rank + 1) % size, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    CHECK(is_cancelled, "nobody sent that");
}

static void persistent_and_ready(void) {
    int out = 0, in = 0;
    MPI_Request both[2];
    MPI_Recv_init(&in, 1, MPI_INT, (rank + size - 1) % size, 11, MPI_COMM_WORLD, &both[0]);
    MPI_Send_init(&out, 1, MPI_INT, (rank + 1) % size, 11, MPI_COMM_WORLD, &both[1]);
    for (int i = 0; i < MANY; i++) {
        out = i;
        MPI_Startall(2, both);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        CHECK(in == i, "%d and not %d", in, i);
    }
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
    MPI_Request request;
    MPI_Irecv(&in, 1, MPI_INT, (rank + size - 1) % size, 12, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    out = rank;
    MPI_Rsend(&out, 1, MPI_INT, (rank + 1) % size, 12, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == (rank + size - 1) % size, "%d", in);
}

/* Every third number of a matrix, short and long. */
static void derived(int count) {
    int *matrix = malloc(3 * count * sizeof *matrix), *row = calloc(count, sizeof *row);
    MPI_Datatype column;
    MPI_Type_vector(count, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 3 * count; i++)
        matrix[i] = i;
    if (rank == 0)
        MPI_Send(matrix, 1, column, 1, 2, MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Recv(row, count, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            CHECK(row[i] == 3 * i, "place %d: %d", i, row[i]);
        for (int i = 0; i < count; i++)
            row[i] = -i;
        MPI_Send(row, count, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Recv(matrix + 1, 1, column, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            CHECK(matrix[3 * i + 1] == -i && matrix[3 * i + 2] == 3 * i + 2, "place %d", i);
    }
    MPI_Type_free(&column);
    free(matrix);
    free(row);
}

int main(int count, char **words) {
    begin(&count, &words);
    CHECK(size > 1 && size <= 64, "two ranks at least");
    wildcards();
    unexpected();
    for (int i = 0; i < 3; i++) {
        int bytes = (int[]){20, 5000, LARGE}[i];
        probes(bytes);
        synchronous(bytes);
        truncated(bytes);
    }
    cancelled();
    persistent_and_ready();
    derived(5);
    derived(100000);
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    int value = rank, sum;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, other);
    CHECK(sum == size * (size - 1) / 2, "%d", sum);
    MPI_Comm_free(&other);
    end();
}
