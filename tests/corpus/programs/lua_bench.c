/* The Lua interpreter, running the scripts beside it. They are compiled into the program, so that nothing but the interpreter
 * is measured. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#pragma clang diagnostic ignored "-Wc23-extensions"

static const char fib[] = {
#embed "lua/fib.lua"
};
static const char nbody[] = {
#embed "lua/nbody.lua"
};
static const char strings[] = {
#embed "lua/strings.lua"
};
static const char sort[] = {
#embed "lua/sort.lua"
};

static const struct {
    const char *name, *text;
    size_t size;
} scripts[] = {
    { "=fib", fib, sizeof fib },
    { "=nbody", nbody, sizeof nbody },
    { "=strings", strings, sizeof strings },
    { "=sort", sort, sizeof sort },
};

static const luaL_Reg libraries[] = {
    { LUA_GNAME, luaopen_base },
    { LUA_TABLIBNAME, luaopen_table },
    { LUA_STRLIBNAME, luaopen_string },
    { LUA_MATHLIBNAME, luaopen_math },
};

int main(void)
{
    size_t i;
    for (i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        size_t k;
        lua_State *state = luaL_newstate();
        if (state == NULL) {
            fputs("out of memory\n", stderr);
            return 1;
        }
        for (k = 0; k < sizeof libraries / sizeof libraries[0]; k++) {
            luaL_requiref(state, libraries[k].name, libraries[k].func, 1);
            lua_pop(state, 1);
        }
        if (luaL_loadbuffer(state, scripts[i].text, scripts[i].size, scripts[i].name) != LUA_OK
            || lua_pcall(state, 0, 0, 0) != LUA_OK) {
            fprintf(stderr, "%s\n", lua_tostring(state, -1));
            return 1;
        }
        lua_close(state);
    }
    return 0;
}
