// The sentence of an Error, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "plait/error.h"

namespace plait {

template <class Call>
std::string sentence_of(const Call& call, Code code = Code::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace plait
