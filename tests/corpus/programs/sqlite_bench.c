/* SQLite in memory: inserts in one transaction, point and range queries over an index, a join with aggregates, text functions,
 * updates and deletes. Prints sums that depend on every answer. Argument: rows (default 150000). */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static sqlite3 *db;

static void check(int status, const char *what)
{
    if (status != SQLITE_OK && status != SQLITE_DONE && status != SQLITE_ROW) {
        fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(db));
        exit(1);
    }
}

static void execute(const char *sql)
{
    check(sqlite3_exec(db, sql, NULL, NULL, NULL), sql);
}

static sqlite3_stmt *prepare(const char *sql)
{
    sqlite3_stmt *statement = NULL;
    check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), sql);
    return statement;
}

/* Runs a prepared statement and folds every column of every row into a number. */
static unsigned long long fold(sqlite3_stmt *statement)
{
    unsigned long long sum = 0;
    int status;
    while ((status = sqlite3_step(statement)) == SQLITE_ROW) {
        int column, columns = sqlite3_column_count(statement);
        for (column = 0; column < columns; column++) {
            const unsigned char *text;
            if (sqlite3_column_type(statement, column) == SQLITE_INTEGER) {
                sum = sum * 31 + (unsigned long long) sqlite3_column_int64(statement, column);
                continue;
            }
            for (text = sqlite3_column_text(statement, column); text != NULL && *text != 0; text++) {
                sum = sum * 31 + *text;
            }
        }
    }
    check(status, "step");
    check(sqlite3_reset(statement), "reset");
    return sum;
}

static unsigned int random_state = 12345;

static unsigned int next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

int main(int argc, char **argv)
{
    int rows = argc > 1 ? atoi(argv[1]) : 150000;
    int i;
    unsigned long long sum = 0;
    sqlite3_stmt *statement;

    check(sqlite3_open(":memory:", &db), "open");
    execute("CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, city INTEGER, age INTEGER);"
            "CREATE TABLE city(id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE INDEX person_city ON person(city, age);");

    execute("BEGIN");
    statement = prepare("INSERT INTO city VALUES(?1, 'city number ' || ?1)");
    for (i = 0; i < 500; i++) {
        sqlite3_bind_int(statement, 1, i);
        fold(statement);
    }
    sqlite3_finalize(statement);
    statement = prepare("INSERT INTO person VALUES(?1, ?2, ?3, ?4)");
    for (i = 0; i < rows; i++) {
        char name[48];
        snprintf(name, sizeof name, "person %08x of %u", next_random(), next_random() % 1000);
        sqlite3_bind_int(statement, 1, i);
        sqlite3_bind_text(statement, 2, name, -1, SQLITE_TRANSIENT);
        sqlite3_bind_int(statement, 3, (int) (next_random() % 500));
        sqlite3_bind_int(statement, 4, (int) (next_random() % 100));
        fold(statement);
    }
    sqlite3_finalize(statement);
    execute("COMMIT");

    statement = prepare("SELECT name, city, age FROM person WHERE id = ?1");
    for (i = 0; i < rows; i++) {
        sqlite3_bind_int(statement, 1, (int) (next_random() % (unsigned int) rows));
        sum += fold(statement);
    }
    sqlite3_finalize(statement);
    printf("point queries %016llx\n", sum);

    statement = prepare("SELECT count(*), sum(age), min(name), max(name) FROM person WHERE city = ?1 AND age BETWEEN ?2 AND ?2 + 20");
    for (i = 0; i < 2000; i++) {
        sqlite3_bind_int(statement, 1, (int) (next_random() % 500));
        sqlite3_bind_int(statement, 2, (int) (next_random() % 80));
        sum = sum * 3 + fold(statement);
    }
    sqlite3_finalize(statement);
    printf("range queries %016llx\n", sum);

    statement = prepare("SELECT city.name, count(*), avg(age), sum(length(person.name)) FROM person JOIN city ON city.id = person.city"
                        " GROUP BY city.id HAVING count(*) > 10 ORDER BY avg(age) DESC, city.id");
    for (i = 0; i < 3; i++) {
        sum = sum * 3 + fold(statement);
    }
    sqlite3_finalize(statement);
    printf("join %016llx\n", sum);

    statement = prepare("SELECT substr(upper(name), 8, 4) AS head, count(*) FROM person WHERE name LIKE '%7%' GROUP BY head ORDER BY 2 DESC, 1 LIMIT 100");
    sum = sum * 3 + fold(statement);
    sqlite3_finalize(statement);
    printf("text %016llx\n", sum);

    execute("BEGIN; UPDATE person SET age = age + 1, name = name || '!' WHERE city % 3 = 0; DELETE FROM person WHERE age > 80; COMMIT");
    statement = prepare("SELECT count(*), sum(age), sum(length(name)) FROM person");
    sum = sum * 3 + fold(statement);
    sqlite3_finalize(statement);
    printf("update and delete %016llx\n", sum);

    check(sqlite3_close(db), "close");
    return 0;
}
