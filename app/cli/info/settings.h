// plait info --settings: every setting, its value and its origin.
#pragma once

#include "cli/info/show.h"

namespace plait::cli {

// Finds the settings as load_settings(), connect() and the kernels do; they may be refused.
//
// file: the one that PLAIT_CONFIG names, or null. Each setting has its name, its value as a
// variable's value, its origin ("default", "PLAIT_PLAN", "plait.toml:3") and its variable.
Json find_settings();

std::string show_settings(const Json& found);

}  // namespace plait::cli
