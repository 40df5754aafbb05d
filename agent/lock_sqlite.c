#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/source_sqlite_impl.h"

void co_lock_path(const struct co_db *db, const char *agent, char *buf, size_t size)
{
    snprintf(buf, size, "%s-cohort-%s", db->path, agent);
}

static bool lock_stands(const struct co_db *db, const char *path)
{
    struct stat at, of;
    return db->lock_fd >= 0 && strcmp(path, db->lock_path) == 0 && stat(path, &at) == 0 &&
           fstat(db->lock_fd, &of) == 0 && at.st_ino == of.st_ino && at.st_dev == of.st_dev;
}

int co_lock_take(struct co_db *db, struct co_err *err)
{
    char path[sizeof db->lock_path];

    co_lock_path(db, db->agent, path, sizeof path);
    if (lock_stands(db, path)) {
        return 0;
    }
    co_lock_drop(db, false);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return co_err_sys(err, errno,
                          "create lock file %.300s (the database's directory must be "
                          "writable for user id %u, SQLite needs that as well)",
                          path, (unsigned)geteuid());
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return co_err_set(err, CO_EBUSY,
                          "lock %s: another process holds it; two agents cannot have "
                          "one id",
                          path);
    }
    snprintf(db->lock_path, sizeof db->lock_path, "%s", path);
    db->lock_fd = fd;
    return 0;
}

void co_lock_drop(struct co_db *db, bool remove)
{
    if (db->lock_fd < 0) {
        return;
    }
    if (remove) {
        unlink(db->lock_path);
    }
    close(db->lock_fd);
    db->lock_fd = -1;
}
