# cmake -D PLAIT=COMMAND -D OUT=FOLDER -P write_pages.cmake
#
# Lets the command write its manual pages and completions, as they are installed below share/.

cmake_minimum_required(VERSION 3.25)

function(write file)
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY ${OUT}/${folder})
  execute_process(COMMAND ${PLAIT} ${ARGN} OUTPUT_FILE ${OUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

execute_process(COMMAND ${PLAIT} --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE ".*\nVerbs:\n(.*)\nOptions:.*" "\\1" help "${help}")
string(REGEX MATCHALL "\n  [a-z]+|^  [a-z]+" verbs "${help}")
file(REMOVE_RECURSE ${OUT})
write(man/man1/plait.1 man)
foreach(verb IN LISTS verbs)
  string(STRIP "${verb}" verb)
  write(man/man1/plait-${verb}.1 man ${verb})
endforeach()
write(bash-completion/completions/plait completion bash)
write(zsh/site-functions/_plait completion zsh)
write(fish/vendor_completions.d/plait.fish completion fish)
