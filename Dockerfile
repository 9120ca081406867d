# An image for JupyterHub, or for one learner:
#   docker build --tag attention-course .
#   docker run --rm --publish 127.0.0.1:8888:8888 attention-course
FROM quay.io/jupyter/minimal-notebook:2026-05-31

COPY pyproject.toml constraints.txt README.md LICENSE /tmp/course/
COPY attention_course /tmp/course/attention_course
COPY notebooks /tmp/course/notebooks
WORKDIR /tmp/course
RUN pip install --no-cache-dir --no-deps "$(grep '^torch==' constraints.txt)" --index-url https://download.pytorch.org/whl/cpu && \
    pip install --no-cache-dir --constraint constraints.txt '.[course]'

# The copies are made at the start of a server: a hub mounts the learner's home, with what is in it, only then.
# A container that starts as root, to become NB_USER, runs this as root: the copies are to be that user's.
USER root
RUN echo 'if [ "$(id -u)" = 0 ]; then sudo --preserve-env --set-home --user "${NB_USER}" attention-course "~/my_notebooks" --no-lab; \
    else attention-course "~/my_notebooks" --no-lab; fi' > /usr/local/bin/before-notebook.d/50-attention-course.sh
USER ${NB_UID}
WORKDIR ${HOME}
CMD ["start-notebook.py", "--LabApp.default_url=/doc/tree/my_notebooks/01_bag_of_words.ipynb"]
