// The records of plait info: how each is found, and shown as text.
#pragma once

#include <string>
#include <vector>

#include "cli/info/show.h"

namespace plait::cli {

// Everything that plait info finds, as one record. Later versions may add keys; existing keys keep
// their meaning.
Json find_out();

// The job as its ranks see it once they are connected: hosts, and how each peer is reached.
// Collective: joins the other ranks of the launcher. Hosts are sorted by their first ranks. The
// link is the one between several hosts, or null.
Json meet_ranks();
std::string show_meeting(const Json& meeting);

// Finds the settings as load_settings(), connect() and the kernels do; they may be refused.
//
// file: the one that PLAIT_CONFIG names, or null. Each setting has its name, its value as a
// variable's value, its origin ("default", "PLAIT_PLAN", "plait.toml:3") and its variable.
Json find_settings();
std::string show_settings(const Json& found);

// Explains which transport connect() would choose, and why not the others. Parses
// "ranks=4 hosts=2 launcher=mpirun transport=shm" in any order. Each is optional; missing ones are
// taken from the environment. `chosen` is null if no transport is usable.
Json explain_transport(const std::vector<std::string>& words);
std::string show_transport(const Json& explained);

// True if words of words_of_problem() describe a product.
bool is_product(const std::vector<std::string>& words);

// Explains which backend select_gemm() would choose, and why not the others. Parses
// "m=8 n=4096 k=4096 x=bf16 w=bf16 out=bf16 backend=vector" in any order, with the defaults of
// parse_gemm(). `chosen` is null if no backend is usable.
Json explain_product(const std::vector<std::string>& words);
std::string show_product(const Json& explained);

}  // namespace plait::cli
