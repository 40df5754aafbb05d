#include "worker/php_abi.h"

#include <main/php.h> /* First: the other headers of PHP need it. */

#include <Zend/zend_modules.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define BUILD_ID_SIZE 64

const char co_php_abi_minor[] = TEXT(PHP_MAJOR_VERSION) "." TEXT(PHP_MINOR_VERSION);

const char *co_php_abi_path(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "php_embed_init");
    if (symbol == NULL || dladdr(symbol, &info) == 0 || info.dli_fname == NULL) {
        return "libphp";
    }
    return info.dli_fname;
}

/* Every extension in libphp carries the build id, "API20220829,NTS", and nothing else there begins
 * like it. It is the one statement of version, threads and debugging that can be read before PHP
 * has started. */
static void find_build_id(const char *bytes, size_t size, char ret_id[BUILD_ID_SIZE])
{
    static const char begin[] = "API20";
    const char *at = memmem(bytes, size, begin, sizeof begin - 1);
    const char *end = bytes + size;
    size_t n = 0;

    while (at != NULL && at + n < end && n < BUILD_ID_SIZE - 1 && at[n] != '\0') {
        ret_id[n] = at[n];
        n++;
    }
    ret_id[n] = '\0';
}

static int read_build_id(const char *path, char ret_id[BUILD_ID_SIZE], struct co_err *err)
{
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return co_err_sys(err, errno, "open %s", path);
    }
    void *bytes = MAP_FAILED;
    if (fstat(fd, &stat) == 0 && stat.st_size > 0) {
        bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    int sys = errno;
    close(fd);
    if (bytes == MAP_FAILED) {
        return co_err_sys(err, sys, "map %s", path);
    }
    find_build_id(bytes, (size_t)stat.st_size, ret_id);
    munmap(bytes, (size_t)stat.st_size);
    return CO_OK;
}

int co_php_abi_check(struct co_err *err)
{
    const char *path = co_php_abi_path();
    char id[BUILD_ID_SIZE] = "";

    if (dlsym(RTLD_DEFAULT, "gnu_get_libc_version") == NULL) {
        return co_err_set(err, CO_EUNSUPPORTED,
                          "%s runs on musl (Alpine), which Cohort does not support; use an image "
                          "based on Debian, such as php:%s-cli",
                          path, co_php_abi_minor);
    }
    if (dlsym(RTLD_DEFAULT, "tsrm_startup") != NULL) {
        return co_err_set(err, CO_EUNSUPPORTED,
                          "%s is a thread-safe build (ZTS), which Cohort does not support; install "
                          "the non-thread-safe one, such as libphp%s-embed or the image php:%s-cli",
                          path, co_php_abi_minor, co_php_abi_minor);
    }
    int rc = read_build_id(path, id, err);
    if (rc < 0) {
        return co_err_wrap(err, "compare libphp with what cohort-worker was built for");
    }
    if (strcmp(id, ZEND_MODULE_BUILD_ID) != 0) {
        return co_err_set(err, CO_EUNSUPPORTED,
                          "%s is build \"%s\", but this cohort-worker was built for PHP %s, build "
                          "\"%s\"; install libphp%s-embed or the cohort-worker for that PHP",
                          path, id, co_php_abi_minor, ZEND_MODULE_BUILD_ID, co_php_abi_minor);
    }
    return CO_OK;
}

void co_php_abi_forget_preload(void)
{
    const char *preload = getenv("LD_PRELOAD");
    if (preload != NULL && strcmp(preload, co_php_abi_path()) == 0) {
        unsetenv("LD_PRELOAD");
    }
}
