/* A stand-in for WSL's libdxcore.so: one adapter of Windows, whose driver store is the folder of /usr/lib/wsl/drivers
 * that holds NVIDIA's libcuda. The structs are those of Windows' d3dkmthk.h. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { SUCCESS = 0, FAILED = -1, DRIVER_VERSION = 13, REGISTRY = 48, WDDM_3_1 = 3100 };

typedef struct {
    unsigned adapter, luid[2], sources, regions;
} adapter_t;

typedef struct {
    unsigned count;
    adapter_t *adapters;
} enum2_t;

typedef struct {
    unsigned long long filter;
    unsigned count;
    adapter_t *adapters;
} enum3_t;

typedef struct {
    unsigned type, flags;
    wchar_t name[260];
    unsigned value_type, index, size, status;
    union {
        unsigned long long number;
        wchar_t text[1];
    } out;
} registry_t;

typedef struct {
    unsigned adapter, type;
    void *data;
    unsigned size;
} query_t;

static int fill(unsigned *count, adapter_t *adapters) {
    if (adapters) memset(adapters, 0, sizeof *adapters);
    *count = 1;
    return SUCCESS;
}
int D3DKMTEnumAdapters2(enum2_t *params) { return fill(&params->count, params->adapters); }
int D3DKMTEnumAdapters3(enum3_t *params) { return fill(&params->count, params->adapters); }

static int store(char *out, unsigned size) {
    DIR *folder = opendir("/usr/lib/wsl/drivers");
    int found = 0;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        char path[600];
        snprintf(path, sizeof path, "/usr/lib/wsl/drivers/%s/libcuda.so.1.1", entry->d_name);
        found = !access(path, F_OK);
        if (found) snprintf(out, size, "/usr/lib/wsl/drivers/%s", entry->d_name);
    }
    if (folder) closedir(folder);
    return found ? SUCCESS : FAILED;
}

int D3DKMTQueryAdapterInfo(query_t *query) {
    char path[300];
    registry_t *registry = query->data;
    if (query->type == DRIVER_VERSION) {
        *(unsigned *)query->data = WDDM_3_1;
        return SUCCESS;
    }
    if (query->type != REGISTRY || store(path, sizeof path)) return FAILED;
    unsigned size = (unsigned)(strlen(path) * sizeof(wchar_t));
    /* the first call asks for the size, the second brings room for it at the end of the struct */
    if (query->size >= sizeof *registry + size) {
        for (size_t i = 0; i < strlen(path); i++) registry->out.text[i] = (wchar_t)path[i];
    }
    registry->size = size;
    return SUCCESS;
}
